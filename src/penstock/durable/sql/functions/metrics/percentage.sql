-- percentage_v1: p_share of p_whole in percent with two decimals; NULL if p_whole is 0.
CREATE OR REPLACE FUNCTION percentage_v1(p_share numeric, p_whole numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE AS $$
    SELECT round(p_share * 100 / nullif(p_whole, 0), 2)
$$;
