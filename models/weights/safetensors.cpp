#include "models/weights/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <optional>
#include <set>
#include <span>
#include <system_error>

#include "base/files.hpp"
#include "base/json_text.hpp"

namespace distilld::models {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the Python library's limit
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kMaxDimensions = 16;

struct DtypeName {
    const char* name;
    torch::ScalarType type;
    int rank;  ///< order in which the Python library lays tensors out, largest first
};

constexpr DtypeName kDtypes[] = {
    {"BOOL", torch::kBool, 0},  {"U8", torch::kUInt8, 1},      {"I8", torch::kInt8, 2},   {"I16", torch::kInt16, 3},
    {"F16", torch::kHalf, 4},   {"BF16", torch::kBFloat16, 5}, {"I32", torch::kInt32, 6}, {"F32", torch::kFloat, 7},
    {"F64", torch::kDouble, 8}, {"I64", torch::kInt64, 9},
};

const DtypeName* by_name(std::string_view name) {
    const auto* found = std::ranges::find_if(kDtypes, [&](const DtypeName& dtype) { return name == dtype.name; });
    return found == std::end(kDtypes) ? nullptr : found;
}

const DtypeName* by_type(torch::ScalarType type) {
    const auto* found = std::ranges::find_if(kDtypes, [&](const DtypeName& dtype) { return type == dtype.type; });
    return found == std::end(kDtypes) ? nullptr : found;
}

std::string system_reason() {
    return std::generic_category().message(errno);
}

Error damaged(const std::filesystem::path& path, std::string what) {
    return invalid_input(path.string() + ": not a valid safetensors file: " + std::move(what));
}

/// Fills `size` bytes from `offset`; false at the end of the file or on an error (errno is 0 at the end).
bool read_exactly(int descriptor, void* target, std::uint64_t size, std::uint64_t offset) {
    auto* bytes = static_cast<char*>(target);
    constexpr std::uint64_t kMaxReadBytes = std::uint64_t{1} << 30;  // Linux transfers less than 2 GiB a call
    while (size > 0) {
        const auto count = ::pread(descriptor, bytes, std::min(size, kMaxReadBytes), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            if (count == 0) {
                errno = 0;
            }
            return false;
        }
        bytes += count;
        size -= static_cast<std::uint64_t>(count);
        offset += static_cast<std::uint64_t>(count);
    }
    return true;
}

std::optional<std::uint64_t> as_unsigned(const json::value& value) {
    if (value.is_uint64()) {
        return value.get_uint64();
    }
    if (value.is_int64() && value.get_int64() >= 0) {
        return static_cast<std::uint64_t>(value.get_int64());
    }
    return std::nullopt;
}

/// One tensor of the header; ranges still relative to the data section. The message lacks file and tensor name.
boost::system::result<SafetensorsFile::Entry, std::string> parse_entry(const json::value& value) {
    const auto* object = value.if_object();
    if (object == nullptr) {
        return std::string("is not an object");
    }
    const auto* dtype_value = object->if_contains("dtype");
    if (dtype_value == nullptr || !dtype_value->is_string()) {
        return std::string("has no dtype");
    }
    const auto* dtype = by_name(std::string_view(dtype_value->get_string()));
    if (dtype == nullptr) {
        return "has dtype " + std::string(dtype_value->get_string()) + ", which is not supported";
    }
    SafetensorsFile::Entry entry;
    entry.dtype = dtype->type;
    const auto* shape = object->if_contains("shape");
    if (shape == nullptr || !shape->is_array() || shape->get_array().size() > kMaxDimensions) {
        return std::string("has no valid shape");
    }
    std::uint64_t bytes = c10::elementSize(dtype->type);
    for (const auto& size_value : shape->get_array()) {
        const auto size = as_unsigned(size_value);
        if (!size || *size > static_cast<std::uint64_t>(INT64_MAX)) {
            return std::string("has a shape that is not a list of sizes");
        }
        if (__builtin_mul_overflow(bytes, *size, &bytes)) {
            return std::string("has a shape that is too large");
        }
        entry.shape.push_back(static_cast<std::int64_t>(*size));
    }
    const auto* offsets = object->if_contains("data_offsets");
    if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2) {
        return std::string("has no data_offsets");
    }
    const auto begin = as_unsigned(offsets->get_array()[0]);
    const auto end = as_unsigned(offsets->get_array()[1]);
    if (!begin || !end || *end < *begin) {
        return std::string("has data_offsets that are not a range");
    }
    if (*end - *begin != bytes) {
        return "holds " + std::to_string(*end - *begin) + " bytes where its shape and dtype need " +
               std::to_string(bytes);
    }
    entry.begin = *begin;
    entry.bytes = bytes;
    return entry;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      entries_(std::move(other.entries_)),
      metadata_(std::move(other.metadata_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(entries_, other.entries_);
    std::swap(metadata_, other.metadata_);
    return *this;
}

SafetensorsFile::~SafetensorsFile() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return io_error(path.string() + ": cannot open: " + system_reason());
    }
    SafetensorsFile file(path, descriptor);
    if (auto read = file.read_header(); !read) {
        return read.error();
    }
    return file;
}

Result<void> SafetensorsFile::read_header() {
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0) {
        return io_error(path_.string() + ": cannot stat: " + system_reason());
    }
    if (!S_ISREG(status.st_mode)) {
        return io_error(path_.string() + ": not a regular file");
    }
    const auto file_size = static_cast<std::uint64_t>(status.st_size);
    if (file_size < kLengthBytes) {
        return damaged(path_, "only " + std::to_string(file_size) + " bytes long, too short for the header length");
    }
    std::array<unsigned char, kLengthBytes> length_bytes{};
    if (!read_exactly(descriptor_, length_bytes.data(), kLengthBytes, 0)) {
        return io_error(path_.string() + ": cannot read: " + system_reason());
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
        length |= static_cast<std::uint64_t>(length_bytes[i]) << (8 * i);
    }
    if (length > kMaxHeaderBytes) {
        return damaged(path_, "claims a header of " + std::to_string(length) + " bytes; at most " +
                                  std::to_string(kMaxHeaderBytes) + " are allowed");
    }
    if (length > file_size - kLengthBytes) {
        return damaged(path_, "truncated in the header: " + std::to_string(length) + " bytes claimed, " +
                                  std::to_string(file_size - kLengthBytes) + " there");
    }
    std::string header(static_cast<std::size_t>(length), '\0');
    if (!read_exactly(descriptor_, header.data(), length, kLengthBytes)) {
        return io_error(path_.string() + ": cannot read: " + system_reason());
    }
    boost::system::error_code code;
    const auto parsed = json::parse(header, code);
    if (code) {
        return damaged(path_, "the header is not JSON (" + code.message() + ")");
    }
    const auto* object = parsed.if_object();
    if (object == nullptr) {
        return damaged(path_, "the header is not a JSON object");
    }
    for (const auto& [key, value] : *object) {
        const std::string name(key);
        if (name == "__metadata__") {
            const auto* metadata = value.if_object();
            if (metadata == nullptr) {
                return damaged(path_, "__metadata__ is not an object");
            }
            for (const auto& [field, text] : *metadata) {
                if (!text.is_string()) {
                    return damaged(path_, "__metadata__." + std::string(field) + " is not a string");
                }
                metadata_.emplace(std::string(field), std::string(text.get_string()));
            }
            continue;
        }
        auto entry = parse_entry(value);
        if (!entry) {
            return damaged(path_, "tensor " + name + " " + entry.error());
        }
        entries_.emplace(name, std::move(*entry));
    }

    // In the order of the data each tensor must begin where the last one ended, and the last end with the file.
    const std::uint64_t data_size = file_size - kLengthBytes - length;
    std::uint64_t expected = 0;
    for (const auto& name : names()) {
        auto& entry = entries_.at(name);
        if (entry.begin < expected) {
            return damaged(path_, "tensor " + name + " overlaps the one before it");
        }
        if (entry.begin > expected) {
            return damaged(path_,
                           "a hole of " + std::to_string(entry.begin - expected) + " bytes before tensor " + name);
        }
        expected = entry.begin + entry.bytes;
        if (expected > data_size) {
            return damaged(path_, "truncated: tensor " + name + " ends at data byte " + std::to_string(expected) +
                                      ", the file has " + std::to_string(data_size));
        }
    }
    if (expected != data_size) {
        return damaged(path_, std::to_string(data_size - expected) + " bytes after the last tensor");
    }
    for (auto& [name, entry] : entries_) {
        entry.begin += kLengthBytes + length;
    }
    return {};
}

std::vector<std::string> SafetensorsFile::names() const {
    std::vector<std::string> result;
    result.reserve(entries_.size());
    for (const auto& [name, entry] : entries_) {
        result.push_back(name);
    }
    // Empty tensors come before the one that begins where they do.
    std::ranges::stable_sort(result, {}, [&](const std::string& name) {
        const auto& entry = entries_.at(name);
        return std::pair(entry.begin, entry.bytes);
    });
    return result;
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
    if (!read_exactly(descriptor_, result.data_ptr(), entry->bytes, entry->begin)) {
        return io_error(path_.string() + ": cannot read tensor " + name + ": " +
                        (errno == 0 ? std::string("the file has become shorter") : system_reason()));
    }
    if (entry->dtype == torch::kBool) {
        // Any other byte in a bool is undefined behaviour.
        const auto* bytes = static_cast<const unsigned char*>(result.data_ptr());
        if (std::any_of(bytes, bytes + entry->bytes, [](unsigned char byte) { return byte > 1; })) {
            return damaged(path_, "tensor " + name + " holds a BOOL that is neither 0 nor 1");
        }
    }
    return result;
}

Result<void> write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                               const std::map<std::string, std::string>& metadata) {
    struct Item {
        const std::string* name;
        const torch::Tensor* tensor;
        const DtypeName* dtype;
    };
    std::vector<Item> items;
    std::set<std::string_view> seen;
    for (const auto& [name, tensor] : tensors) {
        if (name == "__metadata__" || !seen.insert(name).second) {
            return invalid_input(path.string() + ": cannot write tensor " + name + ": the name is taken");
        }
        const auto* dtype = tensor.defined() ? by_type(tensor.scalar_type()) : nullptr;
        if (dtype == nullptr) {
            return invalid_input(path.string() + ": cannot write tensor " + name +
                                 ": its dtype has no safetensors name");
        }
        items.push_back({&name, &tensor, dtype});
    }
    std::ranges::sort(items, [](const Item& left, const Item& right) {
        return left.dtype->rank != right.dtype->rank ? left.dtype->rank > right.dtype->rank : *left.name < *right.name;
    });

    json::object header;
    if (!metadata.empty()) {
        json::object fields;
        for (const auto& [key, text] : metadata) {
            fields[key] = text;
        }
        header["__metadata__"] = std::move(fields);
    }
    std::uint64_t offset = 0;
    for (const auto& item : items) {
        const std::uint64_t end = offset + item.tensor->nbytes();
        json::array shape;
        for (const auto size : item.tensor->sizes()) {
            shape.emplace_back(size);
        }
        json::object entry;
        entry["dtype"] = item.dtype->name;
        entry["shape"] = std::move(shape);
        entry["data_offsets"] = json::array{offset, end};
        header[*item.name] = std::move(entry);
        offset = end;
    }
    auto text = to_text(header);
    text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
    if (text.size() > kMaxHeaderBytes) {
        return invalid_input(path.string() + ": the header would exceed " + std::to_string(kMaxHeaderBytes) + " bytes");
    }
    std::string length(kLengthBytes, '\0');
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
        length[i] = static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xFFU);
    }

    auto file = AtomicFile::create(path);
    if (!file) {
        return file.error();
    }
    if (auto written = file->write(length + text); !written) {
        return written.error();
    }
    for (const auto& item : items) {
        const auto plain = item.tensor->detach().to(torch::kCPU).contiguous();
        const auto bytes = std::span(static_cast<const std::byte*>(plain.data_ptr()), plain.nbytes());
        if (auto written = file->write(bytes); !written) {
            return written.error();
        }
    }
    return file->commit();
}

}  // namespace distilld::models
