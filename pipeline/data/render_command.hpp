#pragma once

#include <filesystem>
#include <string>

namespace distilld {

/// What to type so that the conversations in a JSONL file become one of ids. `tokenizer_folder`: whose chat template is
/// to be taken; a placeholder stands for it where it is empty.
[[nodiscard]] std::string render_command(const std::filesystem::path& file, const std::string& tokenizer_folder);

}  // namespace distilld
