# A size of the GPU, in the usual spellings. A number without a unit matches nothing: that
# group waits forever, and that affinity has no effect.
job "gpu-sizes" {
  type = "batch"

  group "mib" {
    task "task" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "true"
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "16000 MiB"
          }
        }
      }
    }
  }

  group "gib" {
    task "task" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "true"
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "4 GiB"
          }
        }
      }
    }
  }

  group "gb" {
    task "task" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "true"
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">"
            value     = "8GB"
          }
        }
      }
    }
  }

  group "unitless" {
    task "task" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "true"
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "4096"
          }
        }
      }
    }
  }

  group "unitless-affinity" {
    task "task" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "true"
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          affinity {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "16384"
            weight    = 80
          }
        }
      }
    }
  }
}
