# GPU memory for a single Nomad client: the allocation table is a file. Goes
# beside the agent's own configuration.

plugin_dir = "/opt/nomad/plugins"

plugin "nomad-device-gpu-mem" {
  config {
    memory_unit   = "1GiB" # what `count = 1` of a device block means
    poll_interval = "5s"

    table {
      store = "file"
      path  = "/var/lib/nomad-gpu-mem/table.json"
    }
  }
}

plugin "nomad-driver-gpu-docker" {
  config {
    nvidia_runtime = "nvidia"

    # Both plugins must use one table.
    table {
      store = "file"
      path  = "/var/lib/nomad-gpu-mem/table.json"
    }
  }
}
