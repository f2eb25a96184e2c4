# A template requests all GPUs; Nomad applies it after the devices' environment.
job "all-visible-by-template" {
  type = "service"

  group "serve" {
    task "serve" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "sleep"
        args    = ["3600"]
      }

      template {
        data        = "NVIDIA_VISIBLE_DEVICES=all\n"
        destination = "local/gpu.env"
        env         = true
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
