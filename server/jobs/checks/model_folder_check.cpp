#include "server/jobs/checks/model_folder_check.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "api/named_paths.hpp"
#include "base/files/files.hpp"
#include "base/files/open_file.hpp"

namespace distilld {
namespace {

constexpr std::uint64_t kConfigLimit = std::uint64_t{1} << 20U;

bool is_file(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

std::optional<Error> config_defect(const std::filesystem::path& file, const FileRule* rule) {
    if (!is_file(file)) {
        return invalid_input(file.string() + " is not a file");
    }
    const Result<std::string> text = read_text_file(file, kConfigLimit, rule);
    if (!text) {
        return text.error();
    }
    boost::system::error_code failed;
    const auto value = boost::json::parse(*text, failed);
    if (failed || !value.is_object()) {
        return invalid_input(file.string() + " is not a JSON object");
    }
    return std::nullopt;
}

bool has_weights(const std::filesystem::path& folder) {
    return is_file(folder / "model.safetensors") || is_file(folder / "model.safetensors.index.json");
}

}  // namespace

api::SpecViolations check_model_folder(const StudentSpec& student, JobKind kind, const FileRule* rule) {
    api::SpecViolations found;
    const std::filesystem::path folder = student.model;
    const auto violate = [&found](Error error) {
        const bool refused = error.kind == ErrorKind::path_not_allowed;
        found.violations.push_back(
            {"/student/model", refused ? to_string(error.kind) : "invalid_value", std::move(error.message)});
    };
    if (student.model.empty() || student.format == StudentFormat::torchscript) {
        return found;
    }
    // A generate job uses only the folder's vocabulary and tokenizer.
    const bool trains = kind == JobKind::train;
    std::error_code failed;
    if (!std::filesystem::is_directory(folder, failed)) {
        violate(invalid_input(folder.string() + " is not a folder" + (failed ? ": " + failed.message() : "") +
                              api::hub_hint(student.model)));
        return found;
    }
    if (is_file(folder / "adapter_config.json")) {
        // For a PEFT folder, since the worker looks for its base.
        auto defect = config_defect(folder / "adapter_config.json", rule);
        if (!defect && trains && !is_file(folder / "adapter_model.safetensors")) {
            defect = invalid_input(folder.string() + " has an adapter_config.json and no adapter_model.safetensors");
        }
        if (defect) {
            violate(std::move(*defect));
        }
        return found;
    }
    if (!student.config_json) {
        if (auto defect = config_defect(folder / "config.json", rule)) {
            violate(std::move(*defect));
        }
    }
    if (trains && student.init == StudentInit::pretrained && !has_weights(folder)) {
        violate(invalid_input(folder.string() + " has neither model.safetensors nor model.safetensors.index.json"));
    }
    const auto tokenizer = folder / "tokenizer.json";
    if (is_file(tokenizer)) {
        if (auto opened = open_file(tokenizer, O_RDONLY, 0, rule); !opened) {
            violate(opened.error());
        }
    }
    return found;
}

}  // namespace distilld
