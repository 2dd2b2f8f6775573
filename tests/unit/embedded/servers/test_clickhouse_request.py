"""Parsing of ClickHouse's HTTP protocol."""

from __future__ import annotations

import gzip
from email.message import Message

import pytest

from penstock.embedded.servers.clickhouse_request import (
    ProtocolError,
    Statement,
    decode,
    read_statement,
    settings_statement,
    split_insert,
)


def build_headers(**values: str) -> Message:
    message = Message()
    for name, value in values.items():
        message[name.replace("_", "-")] = value
    return message


@pytest.mark.parametrize(
    ("content", "sql", "data", "input_format"),
    [
        (
            b"INSERT INTO t (a, b) FORMAT Native\n\x01\nFORMAT x",
            "INSERT INTO t (a, b) ",
            b"\x01\nFORMAT x",
            "Native",
        ),
        (b"insert into `a FORMAT b` format CSV\r\n1,2\n", "insert into `a FORMAT b` ", b"1,2\n", "CSV"),
        (b"INSERT INTO t (format) FORMAT JSONEachRow {}", "INSERT INTO t (format) ", b"{}", "JSONEachRow"),
        (b"/* FORMAT a */ INSERT INTO t SETTINGS x='FORMAT y' FORMAT Arrow\n", None, b"", "Arrow"),
        (b"-- note\nINSERT INTO t FORMAT TSV\n\n", "-- note\nINSERT INTO t ", b"\n", "TSV"),
    ],
)
def test_an_insert_is_split_from_its_rows(
    content: bytes, sql: str | None, data: bytes, input_format: str
) -> None:
    parsed_sql, *parsed_rows = split_insert(content)
    assert parsed_rows == [data, input_format]
    assert sql is None or parsed_sql == sql


@pytest.mark.parametrize(
    "content",
    [
        b"SELECT 1 FORMAT Native\n",
        b"INSERT INTO t VALUES (1, 'FORMAT x')",
        b"INSERT INTO t FORMAT Values (1)",
        b"INSERT INTO t SELECT * FROM s FORMAT Null",
        b"INSERT INTO t WITH 1 AS x SELECT x",
        b"",
    ],
)
def test_other_content_is_a_statement_without_rows(content: bytes) -> None:
    assert split_insert(content) == (content.decode(), None, "")


def test_url_parameters_become_settings_parameters_and_database() -> None:
    query = {"database": "d", "max_threads": "1", "param_x": "5", "query_id": "q", "session_id": "s"}
    statement = read_statement(query, build_headers(), b"SELECT {x:Int32}")
    assert statement == Statement(
        sql="SELECT {x:Int32}", database="d", settings={"max_threads": "1"}, parameters={"x": "5"}
    )


def test_the_statement_may_be_in_the_url_and_its_rows_in_the_body() -> None:
    body = gzip.compress(b"1\n")
    statement = read_statement(
        {"query": "INSERT INTO t FORMAT CSV"}, build_headers(Content_Encoding="gzip"), body
    )
    assert (statement.sql, statement.data, statement.input_format) == ("INSERT INTO t ", b"1\n", "CSV")


def test_a_form_may_carry_the_statement_and_its_parameters() -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="query"\r\n\r\nSELECT {x:String}\r\n'
        b'--b\r\nContent-Disposition: form-data; name="param_x"\r\n\r\n\xc3\xa4\r\n--b--\r\n'
    )
    statement = read_statement({}, build_headers(Content_Type="multipart/form-data; boundary=b"), body)
    assert statement.sql.strip() == "SELECT {x:String}"
    assert statement.parameters == {"x": "ä"}


@pytest.mark.parametrize(
    ("sql", "result_format"),
    [
        ("SELECT 1", "TabSeparated"),
        ("SELECT 1\n FORMAT Native", "Native"),
        ("(SELECT 1)", "TabSeparated"),
        ("-- a\nWITH 1 AS x SELECT x FORMAT Arrow;", "Arrow"),
        ("CREATE TABLE t (a Int8) ENGINE = Memory", None),
        ("OPTIMIZE TABLE t", None),
    ],
)
def test_the_result_format_follows_from_the_statement(sql: str, result_format: str | None) -> None:
    assert Statement(sql).result_format == result_format


def test_setting_values_are_quoted_and_names_are_checked() -> None:
    assert settings_statement({"a": "it's", "b": "1"}) == "SET a = 'it\\'s', b = '1'"
    with pytest.raises(ProtocolError, match="Unknown setting"):
        settings_statement({"a = 1; DROP TABLE t; --": "1"})


@pytest.mark.parametrize("encoding", ["lz4", "zstd", "gzip", "deflate"])
def test_a_body_that_does_not_match_its_encoding_is_refused(encoding: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(b"not compressed", encoding)
    assert caught.value.code == 271
