#include "pipeline/store/manifest.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/json_fields.hpp"
#include "pipeline/store/formats/bit_packing.hpp"
#include "pipeline/store/shard_leases.hpp"

namespace distilld {

namespace {

constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{4} << 20U;
constexpr std::uint64_t kShardBytes = std::uint64_t{32} << 20U;
constexpr std::uint64_t kMaxShardRows = 65536;
// Several writers share the work by shards, and readers that follow them wait for whole shards.
constexpr std::uint64_t kWantedShards = 64;
constexpr std::uint64_t kMinShardRows = 64;
constexpr std::uint32_t kMaxEntries = 65536;
constexpr std::uint32_t kMaxCounted = 255;  // maximum count in a byte
constexpr std::uint64_t kMaxSampleElements = std::uint64_t{1} << 31U;

std::filesystem::path manifest_file(const std::filesystem::path& folder) {
    return folder / "manifest.json";
}

Error out_of_range(const std::string& field, const std::string& value, const std::string& expected) {
    return invalid_input("a store's " + field + " is " + value + ", " + expected + " is expected");
}

bool has_k(StoreFormat format) {
    return format == StoreFormat::topk || format == StoreFormat::packed || format == StoreFormat::topp;
}

/// Whether the format supports these values.
bool takes(StoreFormat format, StoreValues values) {
    const bool bits = format == StoreFormat::packed || format == StoreFormat::topp;
    switch (values) {
        case StoreValues::f16:
            return true;
        case StoreValues::f32:
            return !bits;
        case StoreValues::u8:
            return bits;
        case StoreValues::bf16:
            return format == StoreFormat::tensors;
    }
    return false;
}

/// Names of what takes() allows.
std::string values_of(StoreFormat format) {
    std::string names;
    for (const StoreValues values : {StoreValues::f16, StoreValues::f32, StoreValues::u8, StoreValues::bf16}) {
        if (takes(format, values)) {
            names += std::string(names.empty() ? "" : " or ") + to_string(values);
        }
    }
    return names;
}

/// Sizes are checked before anything is multiplied or allocated.
Result<void> complete_tensors(StoreManifest& manifest) {
    if (manifest.format != StoreFormat::tensors) {
        manifest.tensors.clear();
        return {};
    }
    manifest.vocabulary = 0;
    if (manifest.sequence_length != 1) {
        return out_of_range("sequence_length", std::to_string(manifest.sequence_length), "1 with format tensors");
    }
    std::uint64_t elements = 0;
    std::set<std::string> names;
    for (const StoredTensor& tensor : manifest.tensors) {
        std::uint64_t count = 1;
        for (const std::int64_t size : tensor.shape) {
            if (size < 1 || static_cast<std::uint64_t>(size) > kMaxSampleElements / count) {
                return out_of_range("tensor " + tensor.name, "of size " + std::to_string(size),
                                    "1 to 2^31 elements per sample");
            }
            count *= static_cast<std::uint64_t>(size);
        }
        elements += count;
        if (tensor.name.empty() || !names.insert(tensor.name).second || elements > kMaxSampleElements) {
            return out_of_range("tensors", "\"" + tensor.name + "\" after " + std::to_string(names.size()) + " others",
                                "different names of at most 2^31 elements per sample together");
        }
    }
    if (names.empty()) {
        return out_of_range("tensors", "empty", "at least one");
    }
    return {};
}

Result<void> complete_format(StoreManifest& manifest) {
    const StoreFormat format = manifest.format;
    if (format == StoreFormat::sampled) {
        manifest.values = StoreValues::f16;
    }
    if (!takes(format, manifest.values)) {
        return out_of_range("values", to_string(manifest.values),
                            values_of(format) + " with format " + to_string(format));
    }
    manifest.k =
        has_k(format) ? std::min<std::uint32_t>(manifest.k, static_cast<std::uint32_t>(manifest.vocabulary)) : 0;
    manifest.p = format == StoreFormat::topp ? manifest.p : 0;
    manifest.samples = format == StoreFormat::sampled ? manifest.samples : 0;
    const std::uint32_t max_k = format == StoreFormat::topp ? kMaxCounted : kMaxEntries;
    if (has_k(format) && (manifest.k < 1 || manifest.k > max_k)) {
        return out_of_range("k", std::to_string(manifest.k), "1 to " + std::to_string(max_k));
    }
    if (format == StoreFormat::topp && !(manifest.p > 0 && manifest.p <= 1)) {
        return out_of_range("p", number_text(manifest.p), "a number above 0, at most 1");
    }
    if (format == StoreFormat::sampled && (manifest.samples < 1 || manifest.samples > kMaxCounted)) {
        return out_of_range("samples", std::to_string(manifest.samples), "1 to " + std::to_string(kMaxCounted));
    }
    return {};
}

bool equal_teachers(const std::string& stored, const std::string& wanted) {
    return stored.empty() || wanted.empty() || stored == wanted;
}

}  // namespace

Result<StoreManifest> complete_manifest(StoreManifest manifest) {
    if (manifest.version != StoreManifest::kVersion) {
        return out_of_range("version", std::to_string(manifest.version), std::to_string(StoreManifest::kVersion));
    }
    if (auto completed = complete_tensors(manifest); !completed) {
        return completed.error();
    }
    if (manifest.format != StoreFormat::tensors && (manifest.vocabulary < 1 || manifest.vocabulary > 0x7FFFFFFFU)) {
        return out_of_range("vocabulary", std::to_string(manifest.vocabulary), "1 to 2147483647");
    }
    if (manifest.rows < 1 || manifest.rows > (std::uint64_t{1} << 40U)) {
        return out_of_range("rows", std::to_string(manifest.rows), "1 to 2^40");
    }
    if (manifest.sequence_length < 1 || manifest.sequence_length > 0x7FFFFFFFU) {
        return out_of_range("sequence_length", std::to_string(manifest.sequence_length), "1 to 2147483647");
    }
    if (manifest.temperature != 1) {
        return out_of_range("temperature", number_text(manifest.temperature), "1");
    }
    if (auto completed = complete_format(manifest); !completed) {
        return completed.error();
    }
    if (manifest.shard_rows == 0) {
        const std::uint64_t row_bytes =
            std::max<std::uint64_t>(1, max_token_bytes(manifest) * manifest.sequence_length);
        const std::uint64_t even = std::max(kMinShardRows, (manifest.rows + kWantedShards - 1) / kWantedShards);
        manifest.shard_rows = static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(kShardBytes / row_bytes, 1, std::min({manifest.rows, even, kMaxShardRows})));
    }
    if (manifest.shard_rows > kMaxShardRows) {
        return out_of_range("shard_rows", std::to_string(manifest.shard_rows), "1 to " + std::to_string(kMaxShardRows));
    }
    return manifest;
}

std::optional<std::string> find_difference(const StoreManifest& stored, const StoreManifest& wanted) {
    const auto left = write_fields(stored);
    const auto right = write_fields(wanted);
    for (const char* field : {"version", "format", "values", "k", "p", "samples", "tensors", "vocabulary", "rows",
                              "sequence_length", "temperature", "dataset_hash", "tokenizer_hash"}) {
        if (left.at(field) != right.at(field)) {
            return std::string(field) + " is " + to_text(left.at(field)) + ", " + to_text(right.at(field)) +
                   " is expected";
        }
    }
    return std::nullopt;
}

std::uint64_t element_count(const StoredTensor& tensor) noexcept {
    return std::accumulate(
        tensor.shape.begin(), tensor.shape.end(), std::uint64_t{1},
        [](std::uint64_t count, std::int64_t size) { return count * static_cast<std::uint64_t>(size); });
}

std::uint64_t max_token_bytes(const StoreManifest& manifest) noexcept {
    const std::uint64_t value_bytes =
        manifest.values == StoreValues::f32 ? 4 : (manifest.values == StoreValues::u8 ? 1 : 2);
    const std::uint64_t ids = packed_bytes(manifest.k, id_bits(manifest.vocabulary));
    const std::uint64_t tail = manifest.values == StoreValues::u8 ? 6 : 4;
    switch (manifest.format) {
        case StoreFormat::full:
            return manifest.vocabulary * value_bytes;
        case StoreFormat::topk:
            return manifest.k * (4 + value_bytes) + tail;
        case StoreFormat::packed:
            return ids + manifest.k * value_bytes + tail;
        case StoreFormat::topp:
            return 1 + ids + manifest.k * value_bytes + tail;
        case StoreFormat::sampled:
            return 1 + packed_bytes(manifest.samples, id_bits(manifest.vocabulary)) + manifest.samples;
        case StoreFormat::tensors:
            return std::accumulate(manifest.tensors.begin(), manifest.tensors.end(), std::uint64_t{0},
                                   [value_bytes](std::uint64_t bytes, const StoredTensor& tensor) {
                                       return bytes + element_count(tensor) * value_bytes;
                                   });
    }
    return 0;
}

bool store_exists(const std::filesystem::path& folder) {
    std::error_code ignored;
    return std::filesystem::exists(manifest_file(folder), ignored);
}

std::optional<std::string> no_store_reason(const std::filesystem::path& folder) {
    std::error_code ignored;
    if (std::filesystem::exists(folder, ignored) && !std::filesystem::is_directory(folder, ignored)) {
        return folder.string() + " is not a store: it is not a folder";
    }
    const auto names = names_in(folder);
    if (store_exists(folder) || !names) {
        return std::nullopt;
    }
    const auto foreign = [](const std::string& name) {
        return name != "lock" && !name.starts_with('.') && !ShardLeases::is_file(name);
    };
    const auto other = std::ranges::find_if(*names, foreign);
    return other == names->end()
               ? std::nullopt
               : std::optional(folder.string() + " is not a store: it has no manifest.json, but " + *other);
}

Result<StoreManifest> read_manifest(const std::filesystem::path& folder) {
    const auto file = manifest_file(folder);
    std::error_code failed;
    if (!std::filesystem::exists(file, failed) && !failed) {
        const bool is_folder = std::filesystem::is_directory(folder, failed);
        return io_error(folder.string() +
                        (is_folder ? " is not a store: it has no manifest.json" : " is not a store: no such folder"));
    }
    const auto text = read_text_file(file, kMaxManifestBytes);
    if (!text) {
        return text.error();
    }
    const auto parsed = parse_json_text(*text, 8);
    if (!parsed) {
        return invalid_input(file.string() + ": not JSON: " + parsed.error().reason);
    }
    if (!parsed->is_object()) {
        return invalid_input(file.string() + ": not a JSON object");
    }
    StoreManifest manifest;
    manifest.version = 0;
    if (auto read = read_fields(parsed->get_object(), manifest, JsonPlace{file.string(), ""}); !read) {
        return read.error();
    }
    if (manifest.shard_rows == 0) {
        return invalid_input(file.string() + ": /shard_rows is missing or 0");
    }
    auto completed = complete_manifest(std::move(manifest));
    if (!completed) {
        return invalid_input(file.string() + ": " + completed.error().message);
    }
    return completed;
}

Result<void> write_manifest(const std::filesystem::path& folder, const StoreManifest& manifest) {
    return write_file_atomically(manifest_file(folder), to_text(write_fields(manifest)) + "\n");
}

Result<StoreManifest> agree_on_manifest(const std::filesystem::path& folder, const StoreManifest& wanted,
                                        const SameTeacher& same_teacher) {
    auto completed = complete_manifest(wanted);
    if (!completed) {
        return completed.error();
    }
    if (!store_exists(folder)) {
        if (auto written = write_manifest(folder, *completed); !written) {
            return written.error();
        }
        return completed;
    }
    auto stored = read_manifest(folder);
    if (!stored) {
        return stored.error();
    }
    if (const auto difference = find_difference(*stored, *completed)) {
        return invalid_input(folder.string() + ": the store there holds other data: " + *difference);
    }
    if (!(same_teacher ? same_teacher(stored->teacher, completed->teacher)
                       : equal_teachers(stored->teacher, completed->teacher))) {
        return invalid_input(folder.string() + ": the store there belongs to another teacher" +
                             (stored->teacher_name.empty() ? std::string() : " (" + stored->teacher_name + ")"));
    }
    return stored;
}

}  // namespace distilld
