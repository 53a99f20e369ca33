#include "base/this_machine.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace distilld {

std::string host_name() {
    std::array<char, 256> name{};
    const bool known = ::gethostname(name.data(), name.size() - 1) == 0 && name.front() != 0;
    return known ? name.data() : "?";
}

std::string boot_id() {
    std::ifstream boot("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(boot, id);
    return id;
}

std::string loopback_id() {
    const std::string boot = boot_id();
    struct stat network{};
    if (boot.empty() || ::stat("/proc/self/ns/net", &network) != 0) {
        return {};
    }
    return boot + ":" + std::to_string(network.st_ino);
}

bool is_stopped(std::uint64_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string stat;
    std::getline(file, stat);
    // The state follows the name, which is in parentheses and may hold anything.
    const auto name_end = stat.rfind(") ");
    return name_end != std::string::npos && stat.substr(name_end + 2, 1) == "T";
}

}  // namespace distilld
