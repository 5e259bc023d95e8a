"""What is learned of windows: settings, sums and engines, of sketches and of Gram matrices."""
