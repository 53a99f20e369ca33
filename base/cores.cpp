#include "base/cores.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <limits>
#include <new>
#include <numeric>
#include <thread>
#include <tuple>

namespace distilld {
namespace {

constexpr std::size_t kFewestCores = 1024;
constexpr std::size_t kMostCores = std::size_t{1} << 20U;

std::uint32_t number_in(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::uint32_t number = 0;
    return in >> number ? number : std::numeric_limits<std::uint32_t>::max();
}

}  // namespace

std::vector<std::uint32_t> allowed_cores() {
    std::vector<std::uint32_t> cores;
    // The kernel refuses a set that is smaller than its own, but does not tell its size.
    for (std::size_t count = kFewestCores; count <= kMostCores; count *= 2) {
        const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(count),
                                                                   [](cpu_set_t* it) { CPU_FREE(it); });
        if (!set) {
            throw std::bad_alloc();
        }
        const std::size_t bytes = CPU_ALLOC_SIZE(count);
        if (::sched_getaffinity(0, bytes, set.get()) == 0) {
            for (std::uint32_t core = 0; core < count; ++core) {
                if (CPU_ISSET_S(core, bytes, set.get())) {
                    cores.push_back(core);
                }
            }
            break;
        }
        if (errno != EINVAL) {
            break;
        }
    }
    if (cores.empty()) {  // a sandbox forbids the call
        cores.resize(std::max(1U, std::thread::hardware_concurrency()));
        std::iota(cores.begin(), cores.end(), 0U);
    }
    return cores;
}

std::uint32_t core_count() {
    return static_cast<std::uint32_t>(allowed_cores().size());
}

std::vector<std::uint32_t> side_by_side(std::span<const std::uint32_t> cores, const std::filesystem::path& sysfs) {
    using Place = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // package, physical core, number
    std::vector<Place> places;
    places.reserve(cores.size());
    for (const std::uint32_t core : cores) {
        const auto topology = sysfs / ("cpu" + std::to_string(core)) / "topology";
        places.emplace_back(number_in(topology / "physical_package_id"), number_in(topology / "core_id"), core);
    }
    std::ranges::sort(places);
    std::vector<std::uint32_t> sorted;
    sorted.reserve(places.size());
    for (const auto& place : places) {
        sorted.push_back(std::get<2>(place));
    }
    return sorted;
}

std::string core_list(std::vector<std::uint32_t> cores) {
    std::ranges::sort(cores);
    std::string text;
    for (std::size_t first = 0; first < cores.size();) {
        std::size_t last = first;
        while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) {
            ++last;
        }
        text += (text.empty() ? "" : ",") + std::to_string(cores[first]);
        if (last > first) {
            text += "-" + std::to_string(cores[last]);
        }
        first = last + 1;
    }
    return text;
}

CoreSet::CoreSet(std::span<const std::uint32_t> cores) {
    if (cores.empty()) {
        return;
    }
    const std::size_t count = std::max<std::size_t>(kFewestCores, std::ranges::max(cores) + 1U);
    bytes_ = CPU_ALLOC_SIZE(count);
    set_.reset(CPU_ALLOC(count));
    if (!set_) {
        throw std::bad_alloc();
    }
    CPU_ZERO_S(bytes_, set_.get());
    for (const std::uint32_t core : cores) {
        CPU_SET_S(core, bytes_, set_.get());
    }
}

bool CoreSet::apply() const noexcept {
    return !set_ || ::sched_setaffinity(0, bytes_, set_.get()) == 0;
}

std::string cpuinfo() {
    std::ifstream file("/proc/cpuinfo");
    return {std::istreambuf_iterator<char>(file), {}};
}

bool multiplies_bf16(std::string_view cpuinfo) {
    while (!cpuinfo.empty()) {
        const std::string_view line = cpuinfo.substr(0, cpuinfo.find('\n'));
        if (line.starts_with("flags")) {
            const std::string words = std::string(line) + ' ';
            const auto has = [&words](const char* flag) { return words.find(flag) != std::string::npos; };
            return (has(" amx_bf16 ") && has(" amx_tile ")) || has(" avx512_bf16 ");
        }
        cpuinfo.remove_prefix(line.size() == cpuinfo.size() ? line.size() : line.size() + 1);
    }
    return false;
}

}  // namespace distilld
