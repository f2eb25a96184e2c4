# A whole GPU of any vendor, on every node. A unit of memory does not match.
job "any-gpu" {
  type = "system"

  group "serve" {
    network {
      port "http" {
        static       = 21436
        host_network = "lan"
      }
    }

    task "serve" {
      driver = "docker"

      config {
        image = "gpu-mem/cuda:1"
        ports = ["http"]
      }

      resources {
        cpu    = 20
        memory = 16

        device "gpu" {
          count = 1
        }
      }
    }
  }
}
