# GPU memory for a Nomad client, with one allocation table for the cluster in
# Consul KV. Goes beside the agent's own configuration.

plugin_dir = "/opt/nomad/plugins"

plugin "nomad-device-gpu-mem" {
  config {
    memory_unit   = "1GiB" # what `count = 1` of a device block means
    poll_interval = "5s"

    table {
      store   = "consul"
      address = "127.0.0.1:8500"
      prefix  = "gpu-mem"
    }
  }
}

plugin "nomad-driver-gpu-docker" {
  config {
    nvidia_runtime = "nvidia"

    # Both plugins must use one table.
    table {
      store   = "consul"
      address = "127.0.0.1:8500"
      prefix  = "gpu-mem"
    }
  }
}
