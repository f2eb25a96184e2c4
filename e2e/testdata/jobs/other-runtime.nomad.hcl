# A slice and another runtime than NVIDIA's: one container cannot have both.
job "other-runtime" {
  type = "service"

  group "inference" {
    shutdown_delay = "1s"

    restart {
      attempts = 0
      mode     = "fail"
    }

    task "model" {
      driver       = "docker"
      kill_signal  = "SIGTERM"
      kill_timeout = "5s"

      config {
        image           = "gpu-mem/cuda:1"
        runtime         = "runc"
        readonly_rootfs = true
        cap_drop        = ["ALL"]
        cpu_hard_limit  = true
      }

      env {
        NVIDIA_VISIBLE_DEVICES     = "all"
        NVIDIA_DRIVER_CAPABILITIES = "compute,utility"
      }

      resources {
        cpu        = 20
        memory     = 16
        memory_max = 32

        device "nvidia/gpu-mem" {
          count = 1

          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "8 GiB"
          }
        }
      }
    }
  }
}
