variable "image" {
  description = "image of both tasks; it needs a shell"
  default     = "gpu-mem/busybox:1"
}

variable "small_units" {
  description = "units of GPU memory for the task `small`; a unit is 1 GiB unless the agent says otherwise"
  default     = 4
}

variable "large_units" {
  description = "units of GPU memory for the task `large`"
  default     = 6
}

job "two-tasks" {
  type = "service"

  group "serving" {
    task "small" {
      driver = "gpu-docker"

      config {
        image   = var.image
        command = "/bin/sh"
        args    = ["-c", "env | grep NVIDIA; ls /dev/nvidia*; exec sleep 1000000"]
      }

      resources {
        cpu    = 100
        memory = 64

        device "nvidia/gpu-mem" {
          count = var.small_units
        }
      }
    }
  }

  group "training" {
    task "large" {
      driver = "gpu-docker"

      config {
        image   = var.image
        command = "/bin/sh"
        args    = ["-c", "env | grep NVIDIA; ls /dev/nvidia*; exec sleep 1000000"]
      }

      resources {
        cpu    = 100
        memory = 64

        device "nvidia/gpu-mem" {
          count = var.large_units
        }
      }
    }
  }
}
