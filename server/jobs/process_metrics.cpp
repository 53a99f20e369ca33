#include "server/jobs/process_metrics.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace distilld {
namespace {

double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double resident_bytes() {
    std::ifstream file("/proc/self/statm");
    double total = 0;
    double resident = 0;
    file >> total >> resident;
    return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

/// Unix time at which the process started: boot time plus field 22 of /proc/self/stat, in clock ticks.
double start_time() {
    std::ifstream stat("/proc/self/stat");
    const std::string text{std::istreambuf_iterator<char>(stat), {}};
    // The second field is the program's name in parentheses, which may hold spaces.
    const auto end = text.rfind(')');
    if (end == std::string::npos) {
        return 0;
    }
    std::istringstream fields(text.substr(end + 1));
    std::string skipped;
    for (int field = 3; field < 22; ++field) {
        fields >> skipped;
    }
    double ticks = 0;
    fields >> ticks;
    double boot = 0;
    std::ifstream system("/proc/stat");
    for (std::string line; std::getline(system, line);) {
        if (line.rfind("btime ", 0) == 0) {
            boot = std::stod(line.substr(6));
        }
    }
    return boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double open_files() {
    std::error_code ec;
    const std::filesystem::directory_iterator begin("/proc/self/fd", ec);
    if (ec) {
        return 0;
    }
    // The iterator itself holds one.
    return static_cast<double>(std::distance(begin, std::filesystem::directory_iterator{})) - 1;
}

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

}  // namespace

ProcessMetrics::ProcessMetrics(prometheus::Registry& registry)
    : resident_memory_(gauge(registry, "process_resident_memory_bytes", "Resident memory of the service.")),
      cpu_seconds_(prometheus::BuildCounter()
                       .Name("process_cpu_seconds_total")
                       .Help("User and system time of the service.")
                       .Register(registry)
                       .Add({})),
      start_time_(gauge(registry, "process_start_time_seconds", "Unix time at which the service started.")),
      open_files_(gauge(registry, "process_open_fds", "Open file descriptors of the service.")) {
    start_time_.Set(start_time());
}

void ProcessMetrics::refresh() {
    resident_memory_.Set(resident_bytes());
    const auto now = cpu_seconds();
    if (now > cpu_seconds_.Value()) {
        cpu_seconds_.Increment(now - cpu_seconds_.Value());
    }
    open_files_.Set(open_files());
}

}  // namespace distilld
