# What the planner may do with the workload identity of its tasks.
namespace "*" {
  capabilities = ["read-job", "list-jobs", "submit-job"]
}

node {
  policy = "read"
}

operator {
  policy = "read" # only for NodeLimitForFeasibilityChecks
}
