#include "models/checkpoint/manifest.hpp"

#include <boost/json.hpp>
#include <span>
#include <string_view>

#include "base/files/files.hpp"
#include "base/json_fields.hpp"
#include "base/json_members.hpp"
#include "base/sha256.hpp"
#include "pipeline/core/event_fields.hpp"

namespace distilld::models {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaxManifestBytes = 64U << 20;
constexpr std::size_t kMaxDepth = 8;

constexpr std::string_view kChecksum = R"(,"sha256":")";
constexpr std::string_view kEnd = "\"}";

/// The text of a JSON object, with the hash of that text added as its last member.
std::string with_checksum(const std::string& object) {
    const std::string hash = sha256_text(object);
    return object.substr(0, object.size() - 1).append(kChecksum).append(hash).append(kEnd);
}

/// Whether `content`, apart from a trailing newline, is a result of with_checksum().
bool has_own_checksum(std::string_view content) {
    if (content.ends_with('\n')) {
        content.remove_suffix(1);
    }
    const auto at = content.rfind(kChecksum);
    return at != std::string_view::npos && content == with_checksum(std::string(content.substr(0, at)) + "}");
}

/// File name -> hash.
void read_files(JsonMembers& members, std::map<std::string, std::string>& files) {
    const json::object* object = members.object("files");
    if (object == nullptr) {
        return;
    }
    JsonMembers hashes(*object, members.place().at("files"));
    for (const auto& [name, hash] : *object) {
        hashes.require(name);
        hashes.text(name, files[name]);
        if (name.empty() || std::filesystem::path(std::string(name)).filename() != std::string(name)) {
            members.fail("files", "names \"" + std::string(name) + "\", which is not a file of the folder");
        }
    }
    if (hashes.failed()) {
        members.fail(hashes.error());
    }
}

}  // namespace

Result<CheckpointManifest> read_checkpoint_manifest(const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / kManifestFile;
    const Result<std::string> content = read_text_file(path, kMaxManifestBytes);
    if (!content) {
        return content.error();
    }
    const auto parsed = parse_json_text(*content, kMaxDepth);
    if (!parsed || !parsed->is_object()) {
        return io_error(path.string() + " is not a JSON object: the checkpoint is damaged");
    }
    JsonMembers members(parsed->get_object(), {path.string(), ""});
    std::int64_t version = 0;
    members.require("format_version").integer("format_version", version);
    if (!members.failed() && version != kCheckpointFormatVersion) {
        return invalid_input(path.string() + ": format_version is " + std::to_string(version) +
                             ", this program reads " + std::to_string(kCheckpointFormatVersion));
    }
    CheckpointManifest manifest;
    for (const char* name : {"step", "next_micro_batch", "tokens_seen", "spec", "adam_steps", "config", "files"}) {
        members.require(name);
    }
    members.integer("step", manifest.run.step);
    members.integer("next_micro_batch", manifest.run.next_micro_batch);
    members.integer("tokens_seen", manifest.run.tokens_seen);
    members.text("spec", manifest.run.spec_json);
    members.integer("adam_steps", manifest.adam_steps);
    members.text("config", manifest.config_json);
    read_files(members, manifest.files);
    if (members.failed()) {
        return io_error(members.error().message);
    }
    // Checkpoints of earlier versions have no progress.
    if (const json::object* progress = members.object("progress")) {
        const JsonPlace place = members.place().at("progress");
        if (const Result<void> read = read_fields(*progress, manifest.run.last, place); !read) {
            return io_error(read.error().message);
        }
    }
    // Nor do they have a checksum.
    if (parsed->get_object().contains("sha256") && !has_own_checksum(*content)) {
        return io_error(path.string() + " is damaged: its SHA-256 is not the one that it names");
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
        {"progress", write_fields(manifest.run.last)},
        {"adam_steps", manifest.adam_steps},
        {"config", manifest.config_json},
        {"spec", manifest.run.spec_json},
        {"files", std::move(files)},
    };
    return write_file_atomically(folder / kManifestFile, with_checksum(to_text(state)) + "\n");
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
