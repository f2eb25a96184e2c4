variable "image" {
  description = "image of the task; it needs a shell"
  default     = "gpu-mem/busybox:1"
}

job "docker-builtin" {
  type = "service"

  group "inference" {
    task "inference" {
      driver = "docker"

      config {
        image   = var.image
        command = "/bin/sh"
        args    = ["-c", "ls /dev/nvidia*; exec sleep 1000000"]
      }

      resources {
        cpu    = 100
        memory = 64

        device "nvidia/gpu-mem" {
          count = 4
        }
      }
    }
  }
}
