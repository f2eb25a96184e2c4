variable "image" {
  description = "image of the task; it needs a shell"
  default     = "gpu-mem/busybox:1"
}

job "two-gpus" {
  type = "service"

  group "training" {
    task "training" {
      driver = "gpu-docker"

      config {
        image   = var.image
        command = "/bin/sh"
        args    = ["-c", "ls /dev/nvidia*; exec sleep 1000000"]
      }

      resources {
        cpu    = 100
        memory = 64

        # Two GPUs, selected by their size.
        device "nvidia/gpu-mem" {
          count = 2

          constraint {
            attribute = "${device.attr.memory}"
            operator  = "<="
            value     = "20000 MiB"
          }
        }

        device "nvidia/gpu-mem" {
          count = 3

          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">"
            value     = "20000 MiB"
          }
        }
      }
    }
  }
}
