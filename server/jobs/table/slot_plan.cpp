#include "server/jobs/table/slot_plan.hpp"

#include <algorithm>
#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/split.hpp>
#include <boost/algorithm/string/trim.hpp>
#include <cstdlib>
#include <system_error>

#include "base/cores.hpp"

namespace distilld {
namespace {

constexpr std::string_view kDeviceFile = "nvidia";

/// As CUDA reads the list: it ends at the first entry that is not a device ("-1").
std::vector<std::string> listed_devices(const std::string& list) {
    std::vector<std::string> names;
    boost::split(names, list, boost::is_any_of(","));
    std::vector<std::string> devices;
    for (std::string& name : names) {
        boost::trim(name);
        if (name.empty() || name.starts_with('-')) {
            break;
        }
        devices.push_back(std::move(name));
    }
    return devices;
}

/// "nvidia0", "nvidia1" … in the order of their numbers.
std::vector<std::string> devices_in(const std::filesystem::path& folder) {
    std::vector<unsigned long> numbers;
    std::error_code ended;
    for (auto entry = std::filesystem::directory_iterator(folder, ended);
         !ended && entry != std::filesystem::directory_iterator(); entry.increment(ended)) {
        const std::string name = entry->path().filename().string();
        if (!name.starts_with(kDeviceFile)) {
            continue;
        }
        const std::string number = name.substr(kDeviceFile.size());
        if (!number.empty() && number.size() <= 4 && std::ranges::all_of(number, boost::is_digit())) {
            numbers.push_back(std::stoul(number));
        }
    }
    std::ranges::sort(numbers);
    // CUDA numbers the existing devices from 0, whatever the numbers of their files.
    std::vector<std::string> devices;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        devices.push_back(std::to_string(i));
    }
    return devices;
}

std::string counted(std::size_t count, const char* one, const char* many) {
    return std::to_string(count) + " " + (count == 1 ? one : many);
}

}  // namespace

SlotMachine this_machine(const std::filesystem::path& devices) {
    SlotMachine machine;
    machine.cores = side_by_side(allowed_cores());
    const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
    machine.devices = list != nullptr ? listed_devices(list) : devices_in(devices);
    return machine;
}

Result<std::vector<Slot>> plan_slots(SlotsBy by, std::optional<std::uint32_t> count, const SlotMachine& machine) {
    const std::size_t cores = machine.cores.size();
    const std::size_t devices = machine.devices.size();
    if (by == SlotsBy::devices && devices == 0) {
        return invalid_input("--slots-by devices: there is no GPU (no /dev/nvidia0, or CUDA_VISIBLE_DEVICES is empty)");
    }
    const std::size_t slots = count.value_or(by == SlotsBy::devices ? devices : 1);
    const std::string wanted = "--slots " + std::to_string(slots) + ": ";
    if (by == SlotsBy::devices && slots > devices) {
        return invalid_input(wanted + "there is no GPU for each slot, but " + counted(devices, "GPU", "GPUs") +
                             " for all");
    }
    if (by == SlotsBy::none) {
        return shared_slots(static_cast<std::uint32_t>(slots));
    }
    if (slots > cores) {
        return invalid_input(wanted + "there is no core for each slot, but " + counted(cores, "core", "cores") +
                             " for all; --slots-by none lets jobs share them");
    }
    std::vector<Slot> plan = shared_slots(static_cast<std::uint32_t>(slots));
    const std::size_t share = cores / slots;
    for (std::size_t i = 0; i < slots; ++i) {
        const auto first = machine.cores.begin() + static_cast<std::ptrdiff_t>(i * share);
        plan[i].cores.assign(first, first + static_cast<std::ptrdiff_t>(share));
        std::ranges::sort(plan[i].cores);
        if (by == SlotsBy::devices) {
            plan[i].device = machine.devices[i];
        }
    }
    return plan;
}

}  // namespace distilld
