#include "server/worker/machine/usage_meter.hpp"

#include <boost/asio/post.hpp>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "server/support/process_metrics.hpp"
#include "server/worker/machine/disk_space.hpp"

namespace distilld {

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kInterval{1};

WorkerUsage look(const UsageSources& sources) {
    WorkerUsage usage;
    const ProcessUsage process = read_process_usage();
    usage.resident_bytes = static_cast<std::uint64_t>(process.resident_bytes);
    usage.peak_resident_bytes = static_cast<std::uint64_t>(process.peak_resident_bytes);
    usage.cpu_seconds = process.cpu_seconds;
    usage.open_files = static_cast<std::uint64_t>(process.open_files);
    if (sources.memory) {
        usage.device = sources.device;
        usage.device_allocated_bytes = sources.memory->allocated_bytes();
        usage.device_reserved_bytes = sources.memory->reserved_bytes();
        usage.device_peak_bytes = sources.memory->peak_bytes();
        usage.device_total_bytes = sources.memory->total_bytes();
    }
    for (const auto& [name, folder] : sources.folders) {
        if (auto disk = disk_usage(name, folder)) {
            usage.disks.push_back(std::move(*disk));
        }
    }
    return usage;
}

}  // namespace

struct UsageMeter::Shared {
    explicit Shared(UsageSources the_sources) : sources(std::move(the_sources)), newest(look(sources)) {}

    void look_again() {
        WorkerUsage seen = look(sources);
        const std::lock_guard lock(mutex);
        newest = std::move(seen);
        at = steady_clock::now();
        looking = false;
    }

    const UsageSources sources;
    std::mutex mutex;  ///< guards what follows
    WorkerUsage newest;
    steady_clock::time_point at = steady_clock::now();
    bool looking = false;
};

UsageMeter::UsageMeter(boost::asio::any_io_executor disk, UsageSources sources)
    : disk_(std::move(disk)), shared_(std::make_shared<Shared>(std::move(sources))) {}

WorkerUsage UsageMeter::newest() {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->looking && steady_clock::now() - shared_->at >= kInterval) {
        shared_->looking = true;
        boost::asio::post(disk_, [shared = shared_] { shared->look_again(); });
    }
    return shared_->newest;
}

}  // namespace distilld
