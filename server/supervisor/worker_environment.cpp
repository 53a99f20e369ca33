#include "server/supervisor/worker_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "net/host_rule.hpp"
#include "pipeline/core/teacher_key_root.hpp"

namespace distilld {
namespace {

constexpr std::string_view kNames[] = {
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TZDIR",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "GLIBC_TUNABLES",
    // The roles of processes that train together, set by torchrun.
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    // Variables of sinks (server/sinks/), with their usual names; for keys see allowed_keys().
    "MLFLOW_EXPERIMENT_NAME",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    // Ours. Other DISTILLD_ variables are settings of the service or of clients, some of them keys.
    kKeyRootVariable,
    kTeacherHostsVariable,
};
/// Variables of libraries that a worker links or loads, and of tools that inspect it.
constexpr std::string_view kPrefixes[] = {
    "LC_",   "OMP_",    "GOMP_",   "KMP_",      "MKL_",  "OPENBLAS_", "DNNL_",  "ONEDNN_",
    "CUDA_", "CUBLAS_", "CUDNN_",  "NVIDIA_",   "NCCL_", "GLOO_",     "TORCH_", "PYTORCH_",
    "ATEN_", "MASTER_", "MALLOC_", "SSL_CERT_", "ASAN_", "LSAN_",     "TSAN_",  "UBSAN_",
};

bool is_passed_on(std::string_view name) {
    return std::ranges::find(kNames, name) != std::end(kNames) ||
           std::ranges::any_of(kPrefixes, [name](std::string_view prefix) { return name.starts_with(prefix); });
}

/// Whether scheme, host and port are the same.
bool same_server(const std::string& one, const std::string& other) {
    const auto a = boost::urls::parse_uri(one);
    const auto b = boost::urls::parse_uri(other);
    const auto port = [](const boost::urls::url_view& url) {
        return url.has_port() ? url.port_number() : boost::urls::default_port(url.scheme_id());
    };
    return a && b && a->scheme_id() == b->scheme_id() && a->host() == b->host() && port(*a) == port(*b);
}

/// The operator's keys that the job may have: the keys that it names for its teachers and rollout servers, and those of
/// a sink if the job writes to the operator's own server.
std::vector<std::string> allowed_keys(const JobSpec* spec) {
    std::vector<std::string> keys;
    if (spec == nullptr) {
        return keys;
    }
    for (const auto& [name, teacher] : spec->teachers) {
        keys.push_back(teacher.api_key_env);
    }
    if (spec->rollout) {
        keys.push_back(spec->rollout->api_key_env);
    }
    if (same_server(spec->metrics.mlflow_url, environment_variable("MLFLOW_TRACKING_URI").value_or(""))) {
        keys.insert(keys.end(), {"MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"});
    }
    const std::string& collector = spec->metrics.otlp_url;
    if (collector.empty() || same_server(collector, environment_variable("OTEL_EXPORTER_OTLP_ENDPOINT").value_or("")) ||
        same_server(collector, environment_variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").value_or(""))) {
        keys.insert(keys.end(), {"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"});
    }
    return keys;
}

}  // namespace

std::vector<std::string> worker_environment() {
    const auto is_set = [](const char* name) { return environment_variable(name).has_value(); };
    std::vector<std::string> settings;
    if (!is_set("OMP_WAIT_POLICY") && !is_set("GOMP_SPINCOUNT") && !is_set("KMP_BLOCKTIME")) {
        settings.emplace_back("GOMP_SPINCOUNT=1000");
    }
    if (!is_set("CUBLAS_WORKSPACE_CONFIG")) {
        settings.emplace_back("CUBLAS_WORKSPACE_CONFIG=:4096:8");
    }
    return settings;
}

std::vector<std::string> child_environment(std::vector<std::string> settings, const JobSpec* spec) {
    const std::vector<std::string> keys = allowed_keys(spec);
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view ours(*entry);
        const std::string_view name = ours.substr(0, ours.find('='));
        const bool replaced = std::ranges::any_of(settings, [name](const std::string& setting) {
            return setting.starts_with(name) && setting.substr(name.size()).starts_with('=');
        });
        if (!replaced && (std::ranges::find(keys, name) != keys.end() || is_passed_on(name))) {
            settings.emplace_back(ours);
        }
    }
    return settings;
}

std::map<std::string, std::string> keys_of_job(const JobSpec* spec) {
    std::map<std::string, std::string> keys;
    for (const std::string& name : allowed_keys(spec)) {
        if (auto value = environment_variable(name.c_str()); value && !name.empty()) {
            keys.emplace(name, *std::move(value));
        }
    }
    return keys;
}

}  // namespace distilld
