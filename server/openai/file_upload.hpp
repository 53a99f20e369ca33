#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/files/files.hpp"
#include "server/http/multipart_reader.hpp"
#include "server/openai/file_catalogue.hpp"

namespace distilld::openai {

/// The space for all uploaded files together. Any thread.
class UploadSpace {
  public:
    /// `taken`: bytes of the existing files, which may exceed the limit.
    UploadSpace(std::uint64_t limit, std::uint64_t taken) : limit_(limit), taken_(taken) {}

    /// Whether this many bytes are free now. Reserves nothing.
    [[nodiscard]] bool has_room(std::uint64_t bytes);
    /// Reserves space. False: not enough is free, and nothing is reserved.
    [[nodiscard]] bool take(std::uint64_t bytes);
    void give_back(std::uint64_t bytes);
    [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

  private:
    const std::uint64_t limit_;
    std::mutex mutex_;
    std::uint64_t taken_;
};

/// The share of one upload; returned at its end unless keep() is called. One thread at a time.
class SpaceClaim {
  public:
    explicit SpaceClaim(std::shared_ptr<UploadSpace> space) : space_(std::move(space)) {}
    ~SpaceClaim() { space_->give_back(used_); }
    SpaceClaim(const SpaceClaim&) = delete;
    SpaceClaim& operator=(const SpaceClaim&) = delete;

    /// Reserves space for received bytes of the file. False: no space.
    [[nodiscard]] bool use(std::uint64_t bytes);
    /// Whether this many more fit now. They are not reserved, because announced bytes may never arrive.
    [[nodiscard]] bool has_room(std::uint64_t bytes) { return space_->has_room(bytes); }
    /// The space stays taken; removing the file returns it.
    void keep() { used_ = 0; }

  private:
    const std::shared_ptr<UploadSpace> space_;
    std::uint64_t used_ = 0;
};

/// The name of an uploaded file in its own folder, because a client's name may look like a pattern in specs.
inline constexpr const char* kStoredName = "data";
/// The purpose of training files, the only one.
inline constexpr const char* kFineTune = "fine-tune";

/// Reads a form with the fields `purpose` and `file` and writes the file as it arrives, into its own folder, which is
/// removed unless keep() is called. One thread at a time; blocks.
class FileUpload final : private http::MultipartHandler {
  public:
    /// `folder` is created; its parent must exist.
    FileUpload(std::filesystem::path folder, std::string id, const std::string& boundary,
               std::shared_ptr<UploadSpace> space);
    ~FileUpload() override;
    FileUpload(const FileUpload&) = delete;
    FileUpload& operator=(const FileUpload&) = delete;

    /// Whether a file of this size currently fits.
    [[nodiscard]] bool has_room(std::uint64_t bytes) { return claim_.has_room(bytes); }
    /// The next bytes of the form. Errors: invalid_input (in the form; see field()), disk_full (the disk is full, or
    /// uploads have used up their space: no_room()), io.
    Result<void> take(std::string_view bytes);
    /// To be called at the end of the form. The file is on disk when it returns.
    Result<UploadedFile> finish();
    /// Keeps a finished file.
    void keep();
    [[nodiscard]] bool no_room() const noexcept { return no_room_; }
    /// The field of the form at fault for an invalid_input; empty = none.
    [[nodiscard]] const std::string& field() const noexcept { return field_; }

  private:
    enum class Part { none, purpose, file };
    Result<void> begin(const http::MultipartPart& part) override;
    Result<void> data(std::string_view bytes) override;
    Result<void> end() override;
    Error blame(const char* field, std::string what);
    Result<void> begin_file(const http::MultipartPart& part);

    const std::filesystem::path folder_;
    UploadedFile file_;
    Part part_ = Part::none;
    bool has_purpose_ = false;
    bool has_file_ = false;
    bool kept_ = false;
    bool no_room_ = false;
    SpaceClaim claim_;
    std::string field_;
    std::optional<AtomicFile> out_;
    http::MultipartReader reader_;
};

}  // namespace distilld::openai
