#include "server/support/process_metrics.hpp"

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

/// A line of /proc/self/status such as "VmRSS:   1234 kB", in bytes; 0 if missing.
double memory_field(const std::string& name) {
    std::ifstream file("/proc/self/status");
    for (std::string word; file >> word;) {
        if (word == name) {
            double kilobytes = 0;
            file >> kilobytes;
            return kilobytes * 1024;
        }
    }
    return 0;
}

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

/// Unix time of the process's start: boot time plus field 22 of /proc/self/stat, in clock ticks.
double start_time() {
    std::ifstream stat("/proc/self/stat");
    const std::string text{std::istreambuf_iterator<char>(stat), {}};
    // The second field is the program's name in parentheses, which may contain spaces.
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
    // The iterator itself has one file open.
    return static_cast<double>(std::distance(begin, std::filesystem::directory_iterator{})) - 1;
}

}  // namespace

ProcessUsage read_process_usage() {
    // It does not change during the process's life.
    static const double kStart = start_time();
    return {memory_field("VmRSS:"), memory_field("VmHWM:"), cpu_seconds(), kStart, open_files()};
}

std::vector<MetricRow<ProcessUsage>> process_metric_rows() {
    using Row = MetricRow<ProcessUsage>;
    using enum MetricType;
    return {
        Row("process_resident_memory_bytes", "Resident memory of the service.", gauge, &ProcessUsage::resident_bytes),
        Row("process_cpu_seconds_total", "User and system time of the service.", counter, &ProcessUsage::cpu_seconds),
        Row("process_start_time_seconds", "Unix time at which the service started.", gauge,
            &ProcessUsage::start_time_seconds),
        Row("process_open_fds", "Open file descriptors of the service.", gauge, &ProcessUsage::open_files),
    };
}

}  // namespace distilld
