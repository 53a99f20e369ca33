#include "pipeline/data/render_command.hpp"

#include <string_view>
#include <system_error>

#include "base/shell_word.hpp"

namespace distilld {

namespace {

std::filesystem::path beside(const std::filesystem::path& file) {
    std::string name = file.filename().string();
    for (const std::string_view ending : {".gz", ".zst", ".jsonl", ".json"}) {
        if (name.size() > ending.size() && name.ends_with(ending)) {
            name.resize(name.size() - ending.size());
        }
    }
    return file.parent_path() / (name + ".ids.jsonl");
}

/// Path of the program, in an installed package or in a build of this repository.
std::string script() {
    constexpr const char* kScript = "tools/render_chat.py";
    std::error_code failed;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
    for (const char* root : {"../share/doc/distilld", "../../.."}) {
        const auto file = (folder / root / kScript).lexically_normal();
        if (!failed && std::filesystem::exists(file, failed)) {
            return shell_word(file.string());
        }
    }
    return kScript;
}

}  // namespace

std::string render_command(const std::filesystem::path& file, const std::string& tokenizer_folder, bool prompts) {
    const std::string folder = tokenizer_folder.empty() ? "TOKENIZER_FOLDER" : shell_word(tokenizer_folder);
    return "python3 " + script() + " --tokenizer " + folder + (prompts ? " --prompts " : " ") +
           shell_word(file.string()) + " " + shell_word(beside(file).string());
}

}  // namespace distilld
