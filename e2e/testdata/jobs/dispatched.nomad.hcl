# Dispatched runs of an image that requests every GPU, without a device block.
job "dispatched" {
  type = "batch"

  meta {
    command = ""
  }

  parameterized {
    meta_optional = ["command", "run_id"]
  }

  reschedule {
    attempts = 0
  }

  group "run" {
    restart {
      attempts = 0
      mode     = "fail"
    }

    task "run" {
      driver = "docker"

      config {
        image   = "gpu-mem/cuda:1"
        command = "${NOMAD_META_COMMAND}"
      }

      env {
        RUN_ID          = "${NOMAD_META_RUN_ID}"
        OMP_NUM_THREADS = 1
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
