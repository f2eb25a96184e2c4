# A sidecar holds the GPU and starts before the other tasks; a probe runs in between.
job "sidecar-model" {
  type = "service"

  group "chat" {
    task "model" {
      driver = "docker"

      lifecycle {
        hook    = "prestart"
        sidecar = true
      }

      config {
        image   = "gpu-mem/cuda:1"
        command = "sleep"
        args    = ["3600"]
      }

      resources {
        cores  = 1
        memory = 16

        device "gpu-mem" {
          count = 1

          constraint {
            attribute = "${device.attr.model}"
            operator  = "="
            value     = "NVIDIA A10"
          }
        }
      }
    }

    task "probe" {
      driver = "docker"

      lifecycle {
        hook    = "prestart"
        sidecar = false
      }

      config {
        image   = "gpu-mem/busybox:1"
        command = "sleep"
        args    = ["1"]
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }

    task "ui" {
      driver = "docker"

      config {
        image   = "gpu-mem/busybox:1"
        command = "sleep"
        args    = ["3600"]
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
