#include "pipeline/data/render_command.hpp"

#include <string_view>

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

}  // namespace

std::string render_command(const std::filesystem::path& file, const std::string& tokenizer_folder) {
    const std::string folder = tokenizer_folder.empty() ? "TOKENIZER_FOLDER" : shell_word(tokenizer_folder);
    return "python3 tools/render_chat.py --tokenizer " + folder + " " + shell_word(file.string()) + " " +
           shell_word(beside(file).string());
}

}  // namespace distilld
