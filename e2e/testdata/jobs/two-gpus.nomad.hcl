# One ask for more units than one GPU has, which never succeeds; and a device block for
# each GPU, which does.
variable "gpus" {
  type = list(string)
}

job "two-gpus" {
  group "any" {
    task "task" {
      driver = "docker"

      config {
        image = "gpu-mem/cuda:1"
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          count = 30
        }
      }
    }
  }

  group "named" {
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

        dynamic "device" {
          for_each = var.gpus
          iterator = gpu
          labels   = ["nvidia/gpu-mem/${gpu.value}"]

          content {
            count = 1
          }
        }
      }
    }
  }
}
