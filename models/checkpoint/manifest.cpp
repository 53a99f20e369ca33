#include "models/checkpoint/manifest.hpp"

#include <boost/json.hpp>

#include "base/files.hpp"
#include "base/sha256.hpp"

namespace distilld::models {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kManifestLimit = 64U << 20;

/// Reads fields of one object; the first failure is kept and named.
class FieldReader {
  public:
    FieldReader(const json::object& object, std::string where) : object_(object), where_(std::move(where)) {}

    std::uint64_t number(const char* name) {
        const json::value* value = find(name);
        boost::system::error_code bad;
        const std::uint64_t result = value != nullptr ? value->to_number<std::uint64_t>(bad) : 0;
        if (bad) {
            fail(name, "is not a whole number");
        }
        return result;
    }

    std::string text(const char* name) {
        const json::value* value = find(name);
        if (value == nullptr) {
            return {};
        }
        if (!value->is_string()) {
            fail(name, "is not a string");
            return {};
        }
        return std::string(value->get_string());
    }

    std::map<std::string, std::string> texts(const char* name) {
        std::map<std::string, std::string> result;
        const json::value* value = find(name);
        if (value == nullptr) {
            return result;
        }
        if (!value->is_object()) {
            fail(name, "is not an object");
            return result;
        }
        for (const auto& [key, entry] : value->get_object()) {
            if (!entry.is_string()) {
                fail(name, "holds something that is not a string");
                return result;
            }
            result.emplace(std::string(key), std::string(entry.get_string()));
        }
        return result;
    }

    [[nodiscard]] const std::string& error() const { return error_; }

  private:
    const json::value* find(const char* name) {
        const json::value* value = object_.if_contains(name);
        if (value == nullptr) {
            fail(name, "is missing");
        }
        return value;
    }
    void fail(const char* name, const char* what) {
        if (error_.empty()) {
            error_ = where_ + ": " + name + " " + what;
        }
    }

    const json::object& object_;
    std::string where_;
    std::string error_;
};

}  // namespace

Result<CheckpointManifest> read_checkpoint_manifest(const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / kManifestFile;
    const Result<std::string> content = read_text_file(path, kManifestLimit);
    if (!content) {
        return content.error();
    }
    boost::system::error_code bad;
    const json::value parsed = json::parse(*content, bad);
    if (bad || !parsed.is_object()) {
        return io_error(path.string() + " is not a JSON object: the checkpoint is damaged");
    }
    FieldReader fields(parsed.get_object(), path.string());
    const std::uint64_t version = fields.number("format_version");
    if (fields.error().empty() && version != static_cast<std::uint64_t>(kCheckpointFormatVersion)) {
        return invalid_input(path.string() + ": format_version is " + std::to_string(version) +
                             ", this program reads " + std::to_string(kCheckpointFormatVersion));
    }
    CheckpointManifest manifest;
    manifest.run.step = fields.number("step");
    manifest.run.next_micro_batch = fields.number("next_micro_batch");
    manifest.run.tokens_seen = fields.number("tokens_seen");
    manifest.run.spec_json = fields.text("spec");
    manifest.adam_steps = fields.number("adam_steps");
    manifest.config_json = fields.text("config");
    manifest.files = fields.texts("files");
    if (!fields.error().empty()) {
        return io_error(fields.error());
    }
    for (const auto& [name, hash] : manifest.files) {
        if (name.empty() || std::filesystem::path(name).filename() != name) {
            return io_error(path.string() + ": files names \"" + name + "\", which is not a file of the folder");
        }
    }
    return manifest;
}

Result<void> write_checkpoint_manifest(const std::filesystem::path& folder, const CheckpointManifest& manifest) {
    json::object files;
    for (const auto& [name, hash] : manifest.files) {
        files[name] = hash;
    }
    const json::object state{
        {"format_version", kCheckpointFormatVersion},
        {"step", manifest.run.step},
        {"next_micro_batch", manifest.run.next_micro_batch},
        {"tokens_seen", manifest.run.tokens_seen},
        {"adam_steps", manifest.adam_steps},
        {"config", manifest.config_json},
        {"spec", manifest.run.spec_json},
        {"files", std::move(files)},
    };
    return write_file_atomically(folder / kManifestFile, json::serialize(state) + "\n");
}

Result<void> verify_checkpoint_files(const std::filesystem::path& folder, const CheckpointManifest& manifest) {
    for (const auto& [name, expected] : manifest.files) {
        const Result<std::string> hash = sha256_file(folder / name);
        if (!hash) {
            return hash.error();
        }
        if (*hash != expected) {
            return io_error((folder / name).string() + " is damaged: its SHA-256 is not the one in " + kManifestFile);
        }
    }
    return {};
}

}  // namespace distilld::models
