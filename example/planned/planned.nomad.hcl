# Two replicas of a model server and a trainer; the planner sends them to the best
# GPUs. The memory of a replica comes from its profile.
variable "image" {
  type    = string
  default = "gpu-mem/busybox:1"
}

variable "replicas" {
  type    = number
  default = 2
}

job "planned" {
  group "serve" {
    count = var.replicas

    task "model" {
      driver = "gpu-docker"

      meta {
        gpu_mem_profile = "llama"
        gpu_mem_batch   = "8"
      }

      config {
        image   = var.image
        command = "sh"
        args    = ["-c", "echo $GPU_MEM_LIMIT_MIB MiB; sleep infinity"]
      }

      resources {
        cpu    = 100
        memory = 64
        device "nvidia/gpu-mem" {}
      }
    }
  }

  group "train" {
    task "main" {
      driver = "gpu-docker"

      config {
        image   = var.image
        command = "sh"
        args    = ["-c", "echo $GPU_MEM_LIMIT_MIB MiB; sleep infinity"]
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
