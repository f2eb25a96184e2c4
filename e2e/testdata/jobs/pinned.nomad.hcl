# A GPU by its UUID, as an attribute, and by its units.
variable "gpu" {
  type = string
}

job "pinned" {
  group "pinned" {
    restart {
      attempts = 0
    }

    task "task" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "sleep"
        args    = ["3600"]
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          count = 2

          constraint {
            attribute = "${device.attr.uuid}"
            value     = var.gpu
          }

          constraint {
            attribute = "${device.ids}"
            operator  = "set_contains"
            value     = "${var.gpu}::0000,${var.gpu}::0001"
          }
        }
      }
    }
  }
}
