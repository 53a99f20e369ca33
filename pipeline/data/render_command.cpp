#include "pipeline/data/render_command.hpp"

#include <string_view>
#include <system_error>

namespace distilld {

namespace {

/// A word as a shell has to be given it.
std::string quoted(const std::string& word) {
    constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
        return word;
    }
    std::string made = "'";
    for (const char letter : word) {
        made += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    }
    return made + "'";
}

std::filesystem::path beside(const std::filesystem::path& file) {
    std::string name = file.filename().string();
    for (const std::string_view ending : {".gz", ".zst", ".jsonl", ".json"}) {
        if (name.size() > ending.size() && name.ends_with(ending)) {
            name.resize(name.size() - ending.size());
        }
    }
    return file.parent_path() / (name + ".ids.jsonl");
}

/// Where the program lies: in a package and in a build of this repository beside it.
std::string script() {
    constexpr const char* kScript = "tools/render_chat.py";
    std::error_code failed;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
    for (const char* root : {"../share/doc/distilld", "../../.."}) {
        const auto file = (folder / root / kScript).lexically_normal();
        if (!failed && std::filesystem::exists(file, failed)) {
            return quoted(file.string());
        }
    }
    return kScript;
}

}  // namespace

std::string render_command(const std::filesystem::path& file, const std::string& tokenizer_folder) {
    const std::string folder = tokenizer_folder.empty() ? "TOKENIZER_FOLDER" : quoted(tokenizer_folder);
    return "python3 " + script() + " --tokenizer " + folder + " " + quoted(file.string()) + " " +
           quoted(beside(file).string());
}

}  // namespace distilld
