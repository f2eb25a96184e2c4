# A privileged container sees every GPU, whatever it has booked.
job "privileged" {
  type = "service"

  constraint {
    attribute = "${attr.driver.docker.privileged.enabled}"
    value     = "true"
  }

  group "serve" {
    restart {
      attempts = 0
      mode     = "fail"
    }

    network {
      port "api" {
        static = 21435
        to     = 11434
      }
    }

    task "serve" {
      driver = "docker"

      config {
        image      = "gpu-mem/cuda:1"
        ports      = ["api"]
        privileged = true
        volumes    = ["/tmp:/models"]
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
