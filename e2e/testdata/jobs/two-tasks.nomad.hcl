# Two tasks of one group with two units each.
job "two-tasks" {
  group "pair" {
    task "a" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "sleep"
        args    = ["3600"]
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          count = 2
        }
      }
    }

    task "b" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "sleep"
        args    = ["3600"]
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          count = 2
        }
      }
    }
  }
}
