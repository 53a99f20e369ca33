// Fuzzes what reads the input of others: fuzz_inputs --target=NAME [libFuzzer's options] [corpus]. --list names the
// targets, --seeds=FOLDER writes the inputs that one begins with. tests/fuzz/run.py runs it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/fuzz/targets.hpp"

namespace distilld::fuzz {

const std::vector<Target>& targets() {
    static const std::vector<Target> rows{
        {"http", read_request, request_seeds},
        {"answer", read_answer, answer_seeds},
        {"spec", read_spec, spec_seeds},
        {"safetensors", read_safetensors, safetensors_seeds},
        {"store", read_store, store_seeds},
        {"checkpoint", read_checkpoint, checkpoint_seeds},
        {"messages", read_messages, message_seeds},
        {"link", read_link, link_seeds},
        {"slurm", read_slurm, slurm_seeds},
        {"completion", read_completions, completion_seeds},
        {"figures", read_printed, printed_seeds},
    };
    return rows;
}

void demand(bool holds, const char* what) {
    if (!holds) {
        std::fprintf(stderr, "broken promise: %s\n", what);
        std::abort();
    }
}

std::vector<std::string_view> parts_of(std::string_view input) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t end = input.find(kBorder);
        parts.push_back(input.substr(0, end));
        if (end == std::string_view::npos) {
            return parts;
        }
        input.remove_prefix(end + kBorder.size());
    }
}

namespace {

const Target* under_test = nullptr;

void write_seeds(const Target& target, const std::filesystem::path& folder) {
    std::size_t number = 0;
    for (const std::string& seed : target.seeds()) {
        std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
        file << seed;
        demand(file.good(), "the seeds can be written");
    }
}

/// What follows `option` in the argument; empty: it is another.
std::string_view value_of(std::string_view argument, std::string_view option) {
    return argument.starts_with(option) ? argument.substr(option.size()) : std::string_view();
}

void list_targets() {
    for (const Target& target : targets()) {
        std::puts(target.name);
    }
}

}  // namespace
}  // namespace distilld::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    using namespace distilld::fuzz;
    std::string_view folder;
    for (int i = 1; i < *argc; ++i) {
        const std::string_view argument = (*argv)[i];
        if (argument == "--list") {
            list_targets();
            std::exit(0);
        }
        for (const Target& target : targets()) {
            if (value_of(argument, "--target=") == target.name) {
                under_test = &target;
            }
        }
        if (const auto named = value_of(argument, "--seeds="); !named.empty()) {
            folder = named;
        }
    }
    if (under_test == nullptr) {
        std::fputs("fuzz_inputs: --target=NAME names no target\n", stderr);
        std::exit(2);
    }
    if (!folder.empty()) {
        write_seeds(*under_test, folder);
        std::exit(0);
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    distilld::fuzz::under_test->read({reinterpret_cast<const char*>(data), size});
    return 0;
}
