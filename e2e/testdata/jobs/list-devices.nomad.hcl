# One unit; the task prints what its container sees.
job "list-devices" {
  type = "batch"

  group "look" {
    task "look" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "ls"
        args    = ["/dev"]
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
