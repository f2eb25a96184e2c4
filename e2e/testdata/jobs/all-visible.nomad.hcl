# A device block, and a variable that requests all GPUs.
job "all-visible" {
  type = "service"

  group "serve" {
    network {
      port "http" {
        static = 21434
      }
    }

    task "serve" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        ports   = ["http"]
        command = "sleep"
        args    = ["3600"]
      }

      env {
        NVIDIA_VISIBLE_DEVICES     = "all"
        NVIDIA_DRIVER_CAPABILITIES = "compute,utility"
        CUDA_VISIBLE_DEVICES       = "0"
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          count = 1
        }
      }
    }
  }
}
