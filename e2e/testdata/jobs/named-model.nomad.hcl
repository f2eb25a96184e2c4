# A generated device block that names the model, an explicit runtime, and an empty
# variable that selects GPUs in other drivers.
variable "models" {
  type    = list(string)
  default = ["NVIDIA A10"]
}

job "named-model" {
  type = "service"

  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }

  group "serve" {
    task "serve" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        runtime = "nvidia"
        command = "sleep"
        args    = ["3600"]
      }

      env {
        NVIDIA_VISIBLE_DEVICES = length(var.models) > 0 ? "" : "0"
      }

      resources {
        cpu    = 20
        memory = 16

        dynamic "device" {
          for_each = var.models
          iterator = model
          labels   = ["nvidia/gpu-mem"]

          content {
            count = 1

            constraint {
              attribute = "${device.attr.model}"
              value     = model.value
            }

            constraint {
              attribute = "${device.attr.memory}"
              operator  = ">="
              value     = "16000 MiB"
            }
          }
        }
      }
    }
  }
}
