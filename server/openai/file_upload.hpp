#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/files.hpp"
#include "server/http/multipart_reader.hpp"
#include "server/openai/file_catalogue.hpp"
#include "server/openai/upload_space.hpp"

namespace distilld::openai {

/// What the bytes of an uploaded file are called in its own folder, whatever the client calls them: a client's name may
/// hold what specs read as a pattern.
inline constexpr const char* kStoredName = "data";
/// The purpose of files that jobs train on: the only one that there is.
inline constexpr const char* kFineTune = "fine-tune";

/// Takes a form with the fields `purpose` and `file` and writes the file as it comes, into a folder of its own that is
/// gone again unless keep() was called. One thread at a time; blocks.
class FileUpload final : private http::MultipartHandler {
  public:
    /// `folder` is made; the one above it must be there.
    FileUpload(std::filesystem::path folder, std::string id, const std::string& boundary,
               std::shared_ptr<UploadSpace> space);
    ~FileUpload() override;
    FileUpload(const FileUpload&) = delete;
    FileUpload& operator=(const FileUpload&) = delete;

    /// Whether there is room for a file of so many bytes among the others at the moment.
    [[nodiscard]] bool has_room(std::uint64_t bytes) { return claim_.has_room(bytes); }
    /// The next bytes of the form. Errors: invalid_input (the form's, see field()), disk_full (the disk is, or there is
    /// no room for the file among the others: no_room()), io.
    Result<void> take(std::string_view bytes);
    /// The form has ended: the file is on disk when this returns.
    Result<UploadedFile> finish();
    /// Of a file that has finished: it stays.
    void keep();
    [[nodiscard]] bool no_room() const noexcept { return no_room_; }
    /// Which field of the form is to blame for an invalid_input; empty = none.
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
