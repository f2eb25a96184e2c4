# Every key of the operator's block, none with the value that it has if it is left out.
config {
  endpoint = "tcp://127.0.0.1:2376"
  tls {
    cert = "/c.pem"
    key  = "/k.pem"
    ca   = "/ca.pem"
  }
  auth {
    config = "/auth.json"
    helper = "ecr-login"
  }

  nvidia_runtime       = "nvidia-cdi"
  gpu_injection        = "runtime"
  allow_privileged_gpu = true
  gpu_observer {
    jobs         = ["monitoring/gpu-exporter"]
    images       = ["exporter@sha256:5b1ae1f0f3d5c1f7a8e4b2c6d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f809101"]
    capabilities = ["utility", "compute"]
  }
  claim_timeout = "0s"
  state_dir     = "/opt/state"
  table {
    store   = "file"
    address = "127.0.0.1:8501"
    token   = "t"
    prefix  = "p"
    path    = "/opt/table.json"

    token_file      = "/token"
    ca_file         = "/ca.pem"
    cert_file       = "/c.pem"
    key_file        = "/k.pem"
    tls_server_name = "server.dc1.consul"
    namespace       = "team-a"
    partition       = "gpus"
    datacenter      = "dc2"
  }

  allow_privileged = true
  allow_caps       = ["all"]
  allow_runtimes   = ["runc", "nvidia-cdi"]
  allowed_modes {
    pid      = ["host"]
    ipc      = ["container:*"]
    userns   = ["host"]
    uts      = ["host"]
    cgroupns = ["host"]
    network  = ["container:vpn"]
  }
  allowed_devices = ["/dev/kfd", "/dev/vfio/*"]
  volumes {
    enabled       = true
    selinuxlabel  = "z"
    stage_sources = false
  }
  allow_writable_logs = true
  pids_limit          = 512
  oom_score_adj       = 10

  extra_labels           = ["job_*"]
  compat_labels          = true
  disable_log_collection = true
  logging {
    type = "journald"
    config {
      tag = "x"
    }
  }

  infra_image               = "local/pause:1"
  infra_image_pull_timeout  = "1m"
  image_pull_timeout        = "9m"
  pull_activity_timeout     = "3m"
  container_exists_attempts = 4
  gc {
    image       = false
    image_delay = "4m"
    container   = false
    dangling_containers {
      enabled        = false
      dry_run        = true
      period         = "2m"
      creation_grace = "1m"
    }
  }

  windows_allow_insecure_container_admin = true
}
