#include "server/openai/exported_files.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <system_error>

#include "base/sha256.hpp"

namespace distilld::openai {
namespace {

constexpr std::string_view kJobPrefix = "job-";
constexpr std::string_view kFilePrefix = "file-";
constexpr std::size_t kJobDigits = 24;
constexpr std::size_t kNameDigits = 16;

constexpr std::array<std::string_view, 12> kNames{"config.json", "generation_config.json", "adapter_config.json",
                                                  // The student's tokenizer, as models/weights/export.hpp copies it.
                                                  "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                                  "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja",
                                                  "added_tokens.json",
                                                  // Whose run it is.
                                                  "distilld.json"};
/// Where a merged model stands beside its adapter, and packed weights beside those that they were made of.
constexpr std::array<std::string_view, 3> kFolders{"", "merged", "ternary"};

bool is_of_a_model(const std::string& name) {
    return name.ends_with(".safetensors") || std::ranges::find(kNames, name) != kNames.end();
}

bool are_digits(std::string_view text) {
    return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string id_of(const std::string& job_id, const std::string& name) {
    Sha256 hash;
    hash.add(std::span<const char>(name));
    return std::string(kFilePrefix) + job_id.substr(kJobPrefix.size()) + "-" + hash.hex().substr(0, kNameDigits);
}

}  // namespace

std::vector<ExportedFile> exported_files(const api::Job& job) {
    std::vector<ExportedFile> files;
    if (job.kind != JobKind::train || job.state != api::JobState::succeeded || !job.id.starts_with(kJobPrefix)) {
        return files;
    }
    for (const auto below : kFolders) {
        std::error_code ec;
        auto entry = std::filesystem::directory_iterator(std::filesystem::path(job.output) / below, ec);
        for (; !ec && entry != std::filesystem::directory_iterator(); entry.increment(ec)) {
            const auto name = entry->path().filename().string();
            std::error_code gone;
            const bool regular = entry->symlink_status(gone).type() == std::filesystem::file_type::regular;
            if (gone || !regular || !is_of_a_model(name)) {
                continue;
            }
            ExportedFile file;
            file.name = below.empty() ? name : std::string(below) + "/" + name;
            file.path = entry->path();
            file.bytes = entry->file_size(gone);
            if (!gone) {
                file.id = id_of(job.id, file.name);
                files.push_back(std::move(file));
            }
        }
    }
    std::ranges::sort(files, {}, &ExportedFile::name);
    return files;
}

std::optional<std::string> job_of_exported_file(std::string_view file_id) {
    if (file_id.size() != kFilePrefix.size() + kJobDigits + 1 + kNameDigits || !file_id.starts_with(kFilePrefix)) {
        return std::nullopt;
    }
    file_id.remove_prefix(kFilePrefix.size());
    const auto job = file_id.substr(0, kJobDigits);
    if (!are_digits(job) || file_id[kJobDigits] != '-' || !are_digits(file_id.substr(kJobDigits + 1))) {
        return std::nullopt;
    }
    return std::string(kJobPrefix) + std::string(job);
}

}  // namespace distilld::openai
