#include "models/weights/safetensors.hpp"

#include <algorithm>
#include <span>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/files/read_at.hpp"
#include "base/safetensors_header.hpp"

namespace distilld::models {
namespace {

struct DtypeName {
    const char* name;
    torch::ScalarType type;
};

constexpr DtypeName kDtypes[] = {
    {"BOOL", torch::kBool},  {"U8", torch::kUInt8},      {"I8", torch::kInt8},   {"I16", torch::kInt16},
    {"F16", torch::kHalf},   {"BF16", torch::kBFloat16}, {"I32", torch::kInt32}, {"F32", torch::kFloat},
    {"F64", torch::kDouble}, {"I64", torch::kInt64},
};

const DtypeName* by_name(std::string_view name) {
    const auto* found = std::ranges::find_if(kDtypes, [&](const DtypeName& dtype) { return name == dtype.name; });
    return found == std::end(kDtypes) ? nullptr : found;
}

const DtypeName* by_type(torch::ScalarType type) {
    const auto* found = std::ranges::find_if(kDtypes, [&](const DtypeName& dtype) { return type == dtype.type; });
    return found == std::end(kDtypes) ? nullptr : found;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
    Result<Descriptor> opened = open_file(path, O_RDONLY);
    if (!opened) {
        return opened.error();
    }
    SafetensorsFile file(path, std::move(*opened));
    if (auto read = file.read_header(); !read) {
        return read.error();
    }
    return file;
}

Result<void> SafetensorsFile::read_header() {
    auto header = read_safetensors_header(file_.get(), path_);
    if (!header) {
        return header.error();
    }
    metadata_ = std::move(header->metadata);
    for (auto& tensor : header->tensors) {
        const auto* dtype = by_name(tensor.dtype->name);
        if (dtype == nullptr) {
            return damaged_safetensors(
                path_, "tensor " + tensor.name + " has dtype " + tensor.dtype->name + ", which is not supported");
        }
        names_.push_back(tensor.name);
        entries_.emplace(tensor.name, Entry{dtype->type, std::move(tensor.shape), tensor.begin, tensor.bytes});
    }
    return {};
}

bool SafetensorsFile::contains(const std::string& name) const {
    return entries_.contains(name);
}

const SafetensorsFile::Entry* SafetensorsFile::find(const std::string& name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
}

Result<torch::Tensor> SafetensorsFile::tensor(const std::string& name) const {
    const auto* entry = find(name);
    if (entry == nullptr) {
        return invalid_input(path_.string() + ": has no tensor " + name);
    }
    auto result = torch::empty(entry->shape, torch::TensorOptions().dtype(entry->dtype));
    const std::span target(static_cast<std::byte*>(result.data_ptr()), entry->bytes);
    if (auto read = read_all_at(file_.get(), target, entry->begin, path_, "tensor " + name); !read) {
        return read.error();
    }
    if (entry->dtype == torch::kBool) {
        // Any other byte in a bool is undefined behaviour.
        const auto* bytes = static_cast<const unsigned char*>(result.data_ptr());
        if (std::any_of(bytes, bytes + entry->bytes, [](unsigned char byte) { return byte > 1; })) {
            return damaged_safetensors(path_, "tensor " + name + " holds a BOOL that is neither 0 nor 1");
        }
    }
    return result;
}

Result<torch::Tensor> SafetensorsFile::mapped_tensor(const std::string& name) const {
    const auto* entry = find(name);
    if (entry == nullptr) {
        return invalid_input(path_.string() + ": has no tensor " + name);
    }
    if (entry->dtype == torch::kBool || entry->begin % c10::elementSize(entry->dtype) != 0) {
        return invalid_input(path_.string() + ": tensor " + name + " cannot be used in the file itself: it begins at " +
                             std::to_string(entry->begin));
    }
    if (!mapped_) {
        Result<MappedFile> mapped = MappedFile::open(path_);
        if (!mapped) {
            return mapped.error();
        }
        mapped_ = std::make_shared<const MappedFile>(std::move(*mapped));
    }
    const std::span<const std::byte> bytes = mapped_->bytes();
    if (entry->begin > bytes.size() || entry->bytes > bytes.size() - entry->begin) {
        return io_error(path_.string() + ": cannot map tensor " + name + ": the file has become shorter");
    }
    // libtorch has no constant tensors; no code writes to a weight that is not trained.
    void* data = const_cast<std::byte*>(bytes.data() + entry->begin);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    const auto keep = [owner = mapped_](void*) {};
    return torch::from_blob(data, entry->shape, keep, torch::TensorOptions().dtype(entry->dtype));
}

Result<void> write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                               const std::map<std::string, std::string>& metadata) {
    SafetensorsHeader header;
    header.metadata = metadata;
    std::map<std::string_view, const torch::Tensor*> by_tensor_name;
    for (const auto& [name, tensor] : tensors) {
        const auto* dtype = tensor.defined() ? by_type(tensor.scalar_type()) : nullptr;
        if (dtype == nullptr) {
            return invalid_input(path.string() + ": cannot write tensor " + name +
                                 ": its dtype has no safetensors name");
        }
        header.tensors.push_back({name, find_safetensors_dtype(dtype->name), tensor.sizes().vec()});
        by_tensor_name.emplace(name, &tensor);
    }
    const auto head = write_safetensors_header(header, path);
    if (!head) {
        return head.error();
    }

    auto file = AtomicFile::create(path);
    if (!file) {
        return file.error();
    }
    if (auto written = file->write(*head); !written) {
        return written.error();
    }
    for (const auto& entry : header.tensors) {
        const auto plain = by_tensor_name.at(entry.name)->detach().to(torch::kCPU).contiguous();
        const auto bytes = std::span(static_cast<const std::byte*>(plain.data_ptr()), plain.nbytes());
        if (auto written = file->write(bytes); !written) {
            return written.error();
        }
    }
    return file->commit();
}

}  // namespace distilld::models
