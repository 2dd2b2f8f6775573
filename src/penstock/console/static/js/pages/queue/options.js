// The options of a durable queue in the order of the form.

export const OPTION_GROUPS = [
  {
    title: "Delivery",
    options: [
      { name: "leaseTime", label: "Lease", unit: "s", hint: "how long a consumer may take" },
      { name: "delayedProcessing", label: "Delay", unit: "s", hint: "a message is handed out this long after its push" },
      { name: "windowBuffer", label: "Window", unit: "s", hint: "a partition rests this long after a push" },
      { name: "priority", label: "Priority", hint: "of the queue in pops of several queues" },
    ],
  },
  {
    title: "Failures",
    options: [
      { name: "retryLimit", label: "Retries" },
      { name: "retryDelay", label: "Delay of a retry", unit: "ms" },
      { name: "dlqAfterMaxRetries", label: "Dead after the last retry", hint: "otherwise it is retried for ever" },
      { name: "deadLetterQueue", label: "Keep dead letters", hint: "otherwise dead messages are discarded" },
    ],
  },
  {
    title: "Limits and retention",
    options: [
      { name: "maxSize", label: "Waiting messages", hint: "0: no limit" },
      { name: "maxPartitions", label: "Partitions", hint: "0: no limit" },
      { name: "ttl", label: "Time to live", unit: "s", hint: "0: messages do not expire" },
      { name: "maxWaitTimeSeconds", label: "Longest wait", unit: "s", hint: "0: no limit" },
      { name: "retentionEnabled", label: "Retention" },
      { name: "retentionSeconds", label: "Keep messages", unit: "s", hint: "0: for ever" },
      { name: "completedRetentionSeconds", label: "Keep finished messages", unit: "s", hint: "0: for ever" },
      { name: "encryptionEnabled", label: "Encrypt payloads" },
    ],
  },
  {
    title: "Search",
    options: [{ name: "indexKeys", label: "Index keys", hint: "JSON paths, one per line, such as $.customer.id: a search for a value under one of them returns at once" }],
  },
];

/** Return the options that have another value now. */
export const changedOptions = (before, after) =>
  Object.fromEntries(Object.entries(after).filter(([name, value]) => value !== "" && !isSame(value, before[name])));

const isSame = (a, b) => JSON.stringify(a) === JSON.stringify(b);
