#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace octavo {

// A regular file mapped for reading. Nothing is copied; pages come in on first use and go back with release().
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // Error(kNotFound, path, ...) or Error(kCorruptFile) when empty
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // A range inside bytes() will be read soon: start reading ahead.
  void prefetch(const std::byte* data, size_t size) const;
  // Takes the range out of resident memory. Its bytes stay readable: touching them maps the file's pages again.
  void release(const std::byte* data, size_t size) const;

 private:
  void advise(const std::byte* data, size_t size, int advice, size_t page) const;

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace octavo
