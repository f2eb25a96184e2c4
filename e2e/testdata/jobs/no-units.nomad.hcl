# A template rendered for "no GPU": zero units of an empty model.
variable "model" {
  type    = string
  default = ""
}

job "no-units" {
  type = "service"

  group "user" {
    task "storage" {
      driver = "docker"

      config {
        image      = "gpu-mem/busybox:1"
        privileged = true
        command    = "sleep"
        args       = ["3600"]
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }

    task "user" {
      driver = "docker"

      config {
        image   = "gpu-mem/busybox:1"
        command = "sleep"
        args    = ["3600"]
      }

      resources {
        cpu    = 20
        memory = 16

        device "gpu-mem" {
          count = 0

          affinity {
            attribute = "${device.model}"
            value     = var.model
            weight    = 50
          }
        }
      }
    }

    task "clean" {
      driver = "raw_exec"

      lifecycle {
        hook = "poststop"
      }

      config {
        command = "/bin/true"
      }
    }
  }
}
