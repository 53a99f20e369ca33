#include "models/families/student_config.hpp"

#include <filesystem>
#include <string>
#include <utility>

#include "base/files.hpp"
#include "base/open_file.hpp"
#include "models/families/adapter_config.hpp"
#include "models/families/config_json.hpp"

namespace distilld::models {

Result<ModelConfig> read_student_config(const StudentSpec& student, std::span<const ModelFamily> families) {
    const JsonPlace in_spec{"", "/student/config"};
    std::string base;
    JsonPlace in_folder;
    if (!student.model.empty()) {
        const std::filesystem::path path = folder_with(student.model, "config.json") / "config.json";
        Result<std::string> text = read_text_file(path, kMaxConfigBytes);
        if (!text) {
            return invalid_at("/student/model", text.error());
        }
        base = std::move(*text);
        in_folder.source = path.string();
    }
    const Result<std::string> merged = merge_config_json(base, in_folder, student.config_json.value_or(""), in_spec);
    if (!merged) {
        return merged.error();
    }
    return parse_model_config(*merged, student.config_json ? in_spec : in_folder, families);
}

Result<void> check_positions(std::uint32_t sequence_length, std::int64_t max_positions) {
    if (static_cast<std::int64_t>(sequence_length) <= max_positions) {
        return {};
    }
    return invalid_input("/dataset/sequence_length: " + std::to_string(sequence_length) +
                         " exceeds the student's max_position_embeddings of " + std::to_string(max_positions));
}

}  // namespace distilld::models
