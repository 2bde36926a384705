"""The page of ``dpgt experiment``: its values, pictures, numbers and claims."""
