# Every key of a job's config block, none with the value that it has if it is left out.
config {
  image              = "https://registry.local:5000/team/app:1"
  image_pull_timeout = "10m"
  force_pull         = true
  load               = "app.tar"
  auth {
    username       = "u"
    password       = "p"
    email          = "e@example.org"
    server_address = "registry.local:5000"
  }
  auth_soft_fail = true

  command     = "serve"
  args        = ["-v", "x"]
  entrypoint  = ["/bin/sh", "-c"]
  work_dir    = "/srv"
  hostname    = "h"
  tty         = true
  interactive = true
  init        = true
  labels {
    a = "b"
    c = "d"
  }
  healthchecks {
    disable = true
  }
  container_exists_attempts = 3
  logging {
    type   = "gelf"
    driver = "syslog"
    config {
      gelf-address = "udp://1.2.3.4:12201"
    }
  }

  cpu_hard_limit    = true
  cpu_cfs_period    = 20000
  cpuset_cpus       = "0-1"
  memory_hard_limit = 512
  pids_limit        = 100
  shm_size          = 1048576
  ulimit {
    nofile = "1024:2048"
    nproc  = "42"
  }
  sysctl {
    "net.core.somaxconn" = "1024"
  }
  storage_opt {
    size = "1G"
  }
  oom_score_adj = 5

  privileged      = true
  cap_add         = ["CAP_NET_ADMIN"]
  cap_drop        = ["mknod"]
  security_opt    = ["no-new-privileges", "seccomp=local/profile.json"]
  readonly_rootfs = true
  runtime         = "runc"
  group_add       = ["video"]
  ipc_mode        = "host"
  pid_mode        = "host"
  uts_mode        = "host"
  userns_mode     = "host"
  cgroupns        = "private"
  isolation       = "process" # refused, since it is for Windows only
  devices = [{
    host_path          = "/dev/null"
    container_path     = "/dev/n"
    cgroup_permissions = "r"
  }]

  network_mode = "backend"
  ports        = ["http"]
  port_map {
    http = 80
  }
  network_aliases        = ["web"]
  ipv4_address           = "172.18.0.9"
  ipv6_address           = "2001:db8::9"
  mac_address            = "02:68:b3:29:da:98"
  advertise_ipv6_address = true
  dns_servers            = ["1.1.1.1"]
  dns_search_domains     = ["example.org"]
  dns_options            = ["ndots:1"]
  extra_hosts            = ["a:1.2.3.4"]

  volumes       = ["data:/data:ro"]
  volume_driver = "pxd"
  mount {
    type     = "bind"
    source   = "local"
    target   = "/m"
    readonly = true
    bind_options {
      propagation = "rshared"
    }
  }
  mount {
    type   = "tmpfs"
    target = "/t"
    tmpfs_options {
      size = 100
      mode = 511
    }
  }
  mount {
    source = "vol"
    target = "/v"
    volume_options {
      no_copy = true
      labels {
        l = "1"
      }
      driver_config {
        name = "d"
        options {
          o = "2"
        }
      }
    }
  }
  mounts = [
    { type = "bind", source = "/srv", target = "/m2", readonly = true, bind_options = { propagation = "rslave" } },
    { type = "tmpfs", target = "/t2", tmpfs_options = { size = 7, mode = 448 } },
    { source = "vol2", target = "/v2", volume_options = { no_copy = true, labels = { l = "2" }, driver_config = { name = "e", options = { o = "3" } } } },
  ]
}
