# The device plugin alone, for Nomad's own Docker driver. Goes beside the
# agent's own configuration.

plugin_dir = "/opt/nomad/plugins"

plugin "nomad-device-gpu-mem" {
  config {
    memory_unit = "1GiB"

    table {
      store = "file"
      path  = "/var/lib/nomad-gpu-mem/table.json"
    }
  }
}
