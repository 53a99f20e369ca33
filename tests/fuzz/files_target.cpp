// Files that may be damaged, or anybody's: safetensors headers, stores of teacher outputs, checkpoints.
#include <algorithm>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>

#include "base/safetensors_header.hpp"
#include "models/checkpoint/manifest.hpp"
#include "pipeline/core/event_fields.hpp"
#include "pipeline/store/store_reader.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/support/field_filler.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/pipeline/store/store_fixture.hpp"

namespace distilld::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRowsRead = 16;

void write(const fs::path& path, std::string_view bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << bytes;
    demand(file.good(), "the folder can be written");
}

std::string content(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

/// One for all inputs, whose files each input replaces.
const fs::path& folder() {
    static const test::TemporaryFolder made;
    return made.path();
}

std::string safetensors(const std::string& header, const std::string& data) {
    std::string file;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        file += static_cast<char>(std::uint64_t{header.size()} >> shift & 0xFFU);
    }
    return file + header + data;
}

}  // namespace

void read_safetensors(std::string_view input) {
    const auto bytes = std::as_bytes(std::span(input));
    auto header = parse_safetensors_header(bytes, "input.safetensors");
    if (!accepted(header)) {
        return;
    }
    std::uint64_t end = 0;
    for (const SafetensorsTensor& tensor : header->tensors) {
        demand(tensor.dtype != nullptr, "a tensor has a dtype");
        demand(tensor.begin >= 8 && tensor.begin <= bytes.size() && tensor.bytes <= bytes.size() - tensor.begin,
               "a tensor lies in the file");
        demand(end == 0 || tensor.begin == end, "there is neither hole nor overlap");
        end = tensor.begin + tensor.bytes;
        std::uint64_t size = tensor.dtype->bytes;
        for (const std::int64_t extent : tensor.shape) {
            demand(extent >= 0, "an extent is no negative number");
            size *= static_cast<std::uint64_t>(extent);
        }
        demand(size == tensor.bytes, "a tensor has the size of its shape");
    }
    SafetensorsHeader again = *header;
    accepted(write_safetensors_header(again, "output.safetensors"));
}

std::vector<std::string> safetensors_seeds() {
    return {
        safetensors(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                    R"("b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})",
                    std::string(10, '\1')),
        safetensors(R"({"e":{"dtype":"I64","shape":[0,9],"data_offsets":[0,0]}})", ""),
        safetensors(R"({"h":{"dtype":"BOOL","shape":[1],"data_offsets":[1,2]}})", "12"),
        safetensors(R"({"o":{"dtype":"U8","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", ""),
        safetensors("{}", ""),
        safetensors("{} ", "rest"),
    };
}

/// A manifest, the list of shards, and the file of the first of them; each may be left out.
void read_store(std::string_view input) {
    const auto parts = parts_of(input);
    const fs::path store = folder() / "store";
    fs::remove_all(store);
    fs::create_directory(store);
    write(store / "manifest.json", parts.front());
    if (parts.size() > 1) {
        write(store / "shards.jsonl", parts[1]);
    }
    if (parts.size() > 2) {
        write(store / "shard-000000.safetensors", parts[2]);
    }
    const auto manifest = read_manifest(store);
    if (!accepted(manifest)) {
        demand(!open_store_reader(store), "there is no store without a manifest");
        return;
    }
    demand(manifest->shard_rows > 0 && manifest->rows > 0, "a store has rows and shards");
    demand(manifest->shard_count() <= manifest->rows, "a shard has a row");
    auto reader = open_store_reader(store);
    if (!accepted(reader) || !accepted((*reader)->refresh())) {
        return;
    }
    for (const StoreShard& shard : (*reader)->shards()) {
        demand(shard.shard < manifest->shard_count(), "a shard is one of the store's");
        const std::uint64_t first = shard.shard * manifest->shard_rows;
        for (std::uint64_t row = first; row < std::min<std::uint64_t>(first + kRowsRead, manifest->rows); ++row) {
            const auto batch = (*reader)->batch_of({row});
            if (accepted(batch)) {
                accepted((*reader)->read(*batch));
            }
        }
    }
}

std::vector<std::string> store_seeds() {
    std::vector<std::string> seeds;
    for (const StoreFormat format :
         {StoreFormat::full, StoreFormat::topk, StoreFormat::packed, StoreFormat::topp, StoreFormat::sampled}) {
        const test::TemporaryFolder made;
        auto writer = open_store_writer(made.path(), test::StoreData::manifest(format));
        demand(accepted(writer), "the fixture's store can be made");
        using Data = test::StoreData;
        for (const std::uint64_t row : Data::all_rows()) {
            const auto batch = Data::batch({row});
            demand(accepted((*writer)->add(batch, Data::targets(batch, format))), "its rows can be added");
        }
        seeds.push_back(content(made.path() / "manifest.json") + std::string(kBorder) +
                        content(made.path() / "shards.jsonl") + std::string(kBorder) +
                        content(made.path() / "shard-000000.safetensors"));
    }
    return seeds;
}

void read_checkpoint(std::string_view input) {
    const fs::path checkpoint = folder() / "checkpoint";
    fs::create_directory(checkpoint);
    write(checkpoint / models::kManifestFile, input);
    const auto manifest = models::read_checkpoint_manifest(checkpoint);
    if (!accepted(manifest)) {
        return;
    }
    for (const auto& [name, hash] : manifest->files) {
        demand(name.find('/') == std::string::npos && name != "..", "a checkpoint names files of its own");
    }
    demand(accepted(models::write_checkpoint_manifest(checkpoint, *manifest)), "what was read can be written");
    const auto again = models::read_checkpoint_manifest(checkpoint);
    demand(accepted(again), "what was written can be read");
    demand(again->run.step == manifest->run.step && again->run.spec_json == manifest->run.spec_json &&
               again->files == manifest->files,
           "a checkpoint stays the same when it is written and read");
    static_cast<void>(models::verify_checkpoint_files(checkpoint, *again));
}

std::vector<std::string> checkpoint_seeds() {
    models::CheckpointManifest manifest;
    manifest.run.step = 3;
    manifest.run.next_micro_batch = 12;
    manifest.run.spec_json = R"({"spec":{},"dataset_sha256":"abc"})";
    manifest.config_json = "{}";
    manifest.files = {{"model.safetensors", std::string(64, 'a')}};
    std::vector<std::string> seeds;
    for (const bool with_progress : {false, true}) {
        if (with_progress) {
            manifest.run.last = test::filled<ProgressEvent>();
        }
        demand(accepted(models::write_checkpoint_manifest(folder(), manifest)), "the folder can be written");
        seeds.push_back(content(folder() / models::kManifestFile));
    }
    return seeds;
}

}  // namespace distilld::fuzz
