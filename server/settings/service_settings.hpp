#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "server/support/log.hpp"
#include "server/support/slots_by.hpp"

/// The settings of `distilld serve`, with their defaults. The rows of the sections (server_settings.cpp and others) add
/// meanings, ranges, flags and environment variables. Plain values; no thread.
namespace distilld {

/// [server]: the HTTP server and the shutdown of the service.
struct ServerSettings {
    std::string listen = "127.0.0.1:8500";
    std::vector<std::string> hosts;  ///< further names of the service in requests, besides the host of `listen`
    std::uint32_t max_connections = 4096;
    std::uint32_t max_streams = 0;  ///< part of max_connections; 0 = half of them
    std::chrono::milliseconds heartbeat{std::chrono::seconds(10)};
    std::uint64_t body_limit = 8ULL << 20;         ///< bytes
    std::uint64_t max_upload_size = 512ULL << 20;  ///< bytes per file sent to /v1/files
    std::uint64_t upload_space = 64ULL << 30;      ///< bytes of all such files
    std::chrono::milliseconds header_timeout{std::chrono::seconds(30)};
    std::chrono::milliseconds idle_timeout{std::chrono::seconds(75)};
    std::chrono::milliseconds handler_timeout{std::chrono::seconds(600)};
    std::chrono::milliseconds drain_timeout{std::chrono::seconds(280)};
};

/// [jobs]: the store, the queue and the workers.
struct JobsSettings {
    std::filesystem::path data_dir;  ///< required
    std::uint32_t slots = 0;         ///< 0 = one, or one per GPU with slots_by devices
    SlotsBy slots_by = SlotsBy::cores;
    std::uint32_t worker_nice = 5;  ///< added to the service's nice value
    std::uint32_t max_worker_restarts = 3;
    std::uint32_t max_oom_restarts = 3;
    std::uint32_t max_queued = 10000;  ///< waiting jobs; more are refused
    std::chrono::milliseconds cancel_grace{std::chrono::seconds(120)};
    std::chrono::milliseconds store_retry{1000};
    std::chrono::milliseconds metrics_interval{500};
    std::uint32_t metrics_kept = 20000;
    std::chrono::hours idempotency_lifetime{24};
};

/// [log]
struct LogSettings {
    bool json = false;
    log::Level level = log::Level::info;
};

/// [teacher]: what jobs may use to reach their teachers.
struct TeacherSettings {
    std::filesystem::path key_root;  ///< empty = none
};

/// [security]: who may send requests, and what jobs may do.
struct SecuritySettings {
    bool insecure = false;                   ///< may listen beyond loopback without a key
    bool metrics_open = false;               ///< /metrics needs no key
    std::vector<std::string> roots;          ///< absolute folders below which specs may name paths
    std::vector<std::string> teacher_hosts;  ///< patterns of HostRule; empty = all except those it always refuses
    bool allow_eval_command = false;         ///< specs may name a program to run
    std::filesystem::path tls_certificate;   ///< empty = plain HTTP
    std::filesystem::path tls_key;
    std::filesystem::path tls_client_ca;          ///< empty = no client certificates
    std::uint64_t audit_file_size = 16ULL << 20;  ///< bytes
    std::uint32_t audit_files = 4;                ///< rotated files to keep
};

/// Where the workers of jobs run.
enum class LauncherKind { local, slurm };
inline constexpr std::array kLauncherKindNames{EnumName<LauncherKind>{"local", LauncherKind::local},
                                               EnumName<LauncherKind>{"slurm", LauncherKind::slurm}};

/// [launcher]
struct LauncherSettings {
    LauncherKind kind = LauncherKind::local;
    std::string url;                           ///< by which workers reach the service; empty = by `listen`
    std::filesystem::path ca_file;             ///< authorities that workers trust; empty = those of their machine
    std::filesystem::path folder;              ///< that all nodes share; empty = in the data folder
    std::vector<std::string> allowed_options;  ///< names that placement.options may have
};

/// [webhooks]: receivers of the ends of jobs.
struct WebhooksSettings {
    std::vector<std::string> urls;
    std::filesystem::path secret_file;       ///< needed with urls
    std::vector<std::string> private_hosts;  ///< names in urls that may have private addresses
    std::chrono::milliseconds timeout{std::chrono::seconds(15)};
    std::uint32_t tries = 12;
};

struct ServiceSettings {
    ServerSettings server;
    JobsSettings jobs;
    LogSettings log;
    TeacherSettings teacher;
    SecuritySettings security;
    LauncherSettings launcher;
    WebhooksSettings webhooks;
};

}  // namespace distilld
