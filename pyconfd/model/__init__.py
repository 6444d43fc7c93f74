"""The values that flow through pyconfd: Snapshot, Context, Rendering, Plan, Outcome, Status. They do nothing."""
